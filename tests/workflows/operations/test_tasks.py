"""Manual tasks: who may claim, give back and decide them, and what an answer has to be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import IntegrityError, connection
from django.utils import timezone
from pydantic import BaseModel, Field, field_validator

from tests.workflows.operations.people import task, user
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import Event, ManualTask, Signal, Workflow


class Dose(BaseModel):
    """What a clinician answers."""

    milligrams: Decimal = Field(gt=0, le=15)
    start: date
    form: Literal["pen", "vial"] = "pen"
    note: str = ""

    @field_validator("note")
    @classmethod
    def no_numbers(cls, note: str) -> str:
        if any(letter.isdigit() for letter in note):
            raise ValueError(f"{note} holds a number")
        return note


DOSE = f"{__name__}.Dose"
GOOD = {"milligrams": "2.5", "start": "2026-03-01"}


def told(row: ManualTask) -> list[tuple[str, str, Any]]:
    """The history: kind, by whom, detail."""
    return list(Event.objects.filter(workflow=row.workflow_id).order_by("id").values_list("kind", "actor", "detail"))


# --- Claim and release --------------------------------------------------------------------------


def test_what_somebody_has_claimed_is_theirs_and_the_others_are_told_their_name(
    anna: User, ben: User, boss: User
) -> None:
    row = task()
    operations.claim_task(row.pk, user=anna)
    for other in (ben, boss):
        for operation in (operations.claim_task, operations.approve):
            with pytest.raises(NotAllowed, match=r"^anna has claimed it, at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.$"):
                operation(row.pk, user=other)
    with pytest.raises(NotAllowed, match=r"^It is yours already\.$"):
        operations.claim_task(row.pk, user=anna)
    assert len(told(row)) == 1
    operations.approve(row.pk, user=anna)
    assert ManualTask.objects.get().state == "approved"


def test_one_gives_back_what_is_ones_own_and_a_superuser_anything(anna: User, ben: User, boss: User) -> None:
    row = task()
    for claimant, releaser in [(anna, anna), (ben, boss)]:
        operations.claim_task(row.pk, user=claimant)
        operations.release_task(row.pk, user=releaser, reason="Lunch.")
        row.refresh_from_db()
        assert (row.assignee, row.claimed_at) == (None, None)
    assert told(row)[1] == ("task_released", "anna", {"reason": "Lunch.", "task": row.pk})
    with pytest.raises(NotAllowed, match=r"^Nobody has claimed it\.$"):
        operations.release_task(row.pk, user=anna)
    operations.claim_task(row.pk, user=anna)
    with pytest.raises(NotAllowed, match=r"^anna has claimed it"):
        operations.release_task(row.pk, user=ben)
    assert ManualTask.objects.get().assignee == anna


def test_who_has_left_the_team_can_still_give_back(anna: User) -> None:
    row = task(team="clinicians")
    operations.claim_task(row.pk, user=anna)
    anna.groups.clear()
    operations.release_task(row.pk, user=anna)
    assert ManualTask.objects.get().assignee is None


def become_inactive(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


LEAVE: dict[str, Callable[[User], Any]] = {
    "the team": lambda user: user.groups.clear(),
    "the staff": lambda user: User.objects.filter(pk=user.pk).update(is_staff=False),
    "for good": become_inactive,
    "their permission": lambda user: user.user_permissions.clear(),
}


def test_whoever_can_no_longer_decide_holds_nothing(db: None) -> None:
    row = task(team="clinicians")
    for name, leave in LEAVE.items():
        holder = user(name, "decide", teams=("clinicians",))
        ManualTask.objects.update(assignee=holder)
        assert ManualTask.objects.with_claims().get(pk=row.pk).is_held
        leave(holder)
        assert not ManualTask.objects.with_claims().get(pk=row.pk).is_held


def test_what_is_free_is_free_within_a_subquery_too(anna: User) -> None:
    free, held = task(team="clinicians"), task(team="clinicians", assignee=anna)
    decidable = operations.decidable(user("carla", "decide", teams=("clinicians",)))
    assert [each.pk for each in ManualTask.objects.filter(pk__in=decidable.values("pk"))] == [free.pk]
    nested = ManualTask.objects.filter(pk__in=ManualTask.objects.filter(pk__in=decidable.values("pk")).values("pk"))
    assert [*nested, *ManualTask.objects.exclude(pk__in=nested.values("pk"))] == [free, held]


def test_the_claim_of_somebody_who_can_no_longer_decide_counts_for_nothing(anna: User, ben: User) -> None:
    carla = user("carla", "decide", teams=("clinicians",))
    tasks = [task(team="clinicians", assignee=anna) for _ in range(3)]
    for operation, _ in CHANGES:
        with pytest.raises(NotAllowed, match=r"^It is assigned to anna\.$|^It is for the team"):
            operation(tasks[0].pk, user=ben, reason="Hers.")
        with pytest.raises(NotAllowed, match=r"^It is assigned to anna\.$"):
            operation(tasks[0].pk, user=carla, reason="Hers.")
    anna.groups.clear()
    for operation, _ in CHANGES:
        with pytest.raises(NotAllowed, match=r"^It is for the team clinicians, and you are not in it\.$"):
            operation(tasks[0].pk, user=ben, reason="Nobody's.")
    taken, released, decided = tasks
    operations.claim_task(taken.pk, user=carla)
    operations.release_task(released.pk, user=carla)
    operations.approve(decided.pk, user=carla)
    for row in tasks:
        row.refresh_from_db()
    assert (taken.assignee, released.assignee, decided.decided_by) == (carla, None, carla)
    assert taken.claimed_at
    kinds = [kind for row in tasks for kind, *_ in told(row)]
    assert kinds == ["task_claimed", "task_released", "approved"]


def test_a_superuser_who_is_in_no_team_keeps_what_they_have_claimed(anna: User, boss: User) -> None:
    row = task(team="clinicians", assignee=boss)
    with pytest.raises(NotAllowed, match=r"^It is assigned to boss\.$"):
        operations.claim_task(row.pk, user=anna)
    become_inactive(boss)
    operations.claim_task(row.pk, user=anna)


def test_who_may_decide_by_a_group_and_is_in_others_keeps_what_they_have_claimed(anna: User, ben: User) -> None:
    ben.user_permissions.clear()
    for name in ("packers", "approvers"):
        ben.groups.add(Group.objects.create(name=name))
    Group.objects.get(name="approvers").permissions.set(Permission.objects.filter(codename="decide_manualtask"))
    for fields in ({}, {"team": "packers"}):
        row = task(assignee=ben, **fields)
        assert ManualTask.objects.with_claims().get(pk=row.pk).is_held
    with pytest.raises(NotAllowed, match=r"^It is assigned to ben\.$"):
        operations.claim_task(task(assignee=ben).pk, user=anna)


def test_four_eyes_are_kept_where_a_claim_counts_for_nothing(anna: User, ben: User) -> None:
    row = task(assignee=ben, requested_by=anna, four_eyes=True)
    become_inactive(ben)
    for operation, _ in CHANGES:
        with pytest.raises(NotAllowed, match=r"^You requested this yourself"):
            operation(row.pk, user=anna, reason="Mine.")


CHANGES: list[tuple[Callable[..., None], dict[str, Any]]] = [
    (operations.claim_task, {}),
    (operations.release_task, {}),
    (operations.approve, {}),
    (operations.reject, {"reason": "No."}),
]


def test_a_task_that_is_over_stays_as_it_is(anna: User) -> None:
    over: list[tuple[dict[str, Any], str]] = [
        ({"state": "expired"}, "It expired at "),
        ({"expires_at": timezone.now() - timedelta(seconds=1)}, "It expired at "),
        ({"state": "closed"}, "Its workflow went on without an answer"),
        ({}, "Its workflow has finished; it is failed"),
    ]
    for fields, sentence in over:
        row = task(assignee=anna, **fields)
        if not fields:
            Workflow.objects.filter(pk=row.workflow_id).update(status="FAILED", completed_at=timezone.now())
        for operation, arguments in CHANGES:
            with pytest.raises(NotAllowed, match=sentence):
                operation(row.pk, user=anna, **arguments)
        assert told(row) == []
        assert ManualTask.objects.get(pk=row.pk).assignee == anna


# --- Whose decision it is -----------------------------------------------------------------------


def test_a_teams_task_is_for_its_members_and_superusers(anna: User, ben: User, boss: User) -> None:
    for operation, arguments in (CHANGES[0], *CHANGES[2:]):
        for member in (anna, boss):
            operation(task(team="clinicians").pk, user=member, **arguments)
        row = task(team="clinicians")
        with pytest.raises(NotAllowed, match=r"^It is for the team clinicians, and you are not in it\.$"):
            operation(row.pk, user=ben, **arguments)
        row.refresh_from_db()
        assert (row.state, row.assignee) == ("open", None)


def test_four_eyes_refuse_who_requested_it_and_take_anybody_elses(anna: User, ben: User, boss: User) -> None:
    for requester in (anna, boss):
        row = task(requested_by=requester, four_eyes=True)
        for operation, arguments in (CHANGES[0], *CHANGES[2:]):
            with pytest.raises(NotAllowed, match=r"^You requested this yourself"):
                operation(row.pk, user=requester, **arguments)
        operations.approve(row.pk, user=ben)
    operations.approve(task(requested_by=anna).pk, user=anna)  # four eyes were not asked for


def test_four_eyes_are_the_databases_to_keep_and_its_refusal_is_told_in_words(anna: User) -> None:
    """The request changes hands under the update: what no look before it can see."""
    row = task(four_eyes=True, requested_by=user("carla", "decide"))
    with connection.cursor() as cursor:
        cursor.execute(
            """CREATE FUNCTION pg_temp.hand_over() RETURNS trigger LANGUAGE plpgsql
               AS 'BEGIN NEW.requested_by_id = NEW.decided_by_id; RETURN NEW; END';
               CREATE TRIGGER hand_over BEFORE UPDATE ON workflows_manualtask
               FOR EACH ROW EXECUTE FUNCTION pg_temp.hand_over()"""
        )
    with pytest.raises(NotAllowed, match=r"^You requested this yourself") as refusal:
        operations.approve(row.pk, user=anna)
    assert refusal.value.__suppress_context__, "PostgreSQL's refusal quotes the row"
    assert (ManualTask.objects.get().state, Signal.objects.count(), told(row)) == ("open", 0, [])


def test_other_constraints_are_errors_as_before(anna: User) -> None:
    row = task()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE workflows_manualtask ADD CONSTRAINT other CHECK (reason <> 'other')")
    with pytest.raises(IntegrityError):
        operations.approve(row.pk, user=anna, reason="other")


# --- Answers ------------------------------------------------------------------------------------


class Aliased(BaseModel):
    from_: date = Field(alias="from")


def test_an_answer_is_stored_in_its_json_form_so_that_its_model_can_read_it_again(anna: User) -> None:
    answer = {"milligrams": Decimal("2.50"), "start": date(2026, 3, 1), "note": "Slowly."}
    operations.approve(task(answer_model=DOSE).pk, user=anna, answer=answer)
    stored = Signal.objects.get().payload["answer"]
    assert stored == {"milligrams": "2.50", "start": "2026-03-01", "form": "pen", "note": "Slowly."}
    assert Dose.model_validate(stored).milligrams == Decimal("2.50")
    operations.approve(task(answer_model=f"{__name__}.Aliased").pk, user=anna, answer={"from": "2026-03-01"})
    assert Aliased.model_validate(Signal.objects.latest("id").payload["answer"]).from_ == date(2026, 3, 1)


def test_an_approval_needs_the_answer_and_a_rejection_none(anna: User) -> None:
    row = task(answer_model=DOSE)
    with pytest.raises(
        NotAllowed, match=r"^A yes is not enough: the answer has fields \(milligrams, start, form, note"
    ):
        operations.approve(row.pk, user=anna)
    assert ManualTask.objects.get().state == "open"
    operations.reject(row.pk, user=anna, reason="Too heavy.")
    assert "answer" not in Signal.objects.get().payload


def test_an_answer_that_does_not_fit_is_refused_without_repeating_it(anna: User) -> None:
    row = task(answer_model=DOSE)
    for answer, fault in [
        ({}, r"milligrams \(missing\), start \(missing\)"),
        ({**GOOD, "milligrams": "4711"}, r"milligrams \(less_than_equal\)"),
        ({**GOOD, "note": "4711"}, r"note \(value_error\)"),
        ({**GOOD, "note": "4711\0"}, "cannot be kept: A string holds the null character"),
        ({**GOOD, "note": object()}, "cannot be kept"),
    ]:
        with pytest.raises(NotAllowed, match=fault) as refusal:
            operations.approve(row.pk, user=anna, answer=answer)
        assert "4711" not in str(refusal.value)
        assert refusal.value.__suppress_context__
    assert (ManualTask.objects.get().state, Signal.objects.count(), told(row)) == ("open", 0, [])


def test_an_answer_whose_model_this_release_does_not_have_is_refused(anna: User) -> None:
    for path in ("tests.nowhere.Dose", f"{__name__}.Gone", f"{__name__}.told", "Dose"):
        row = task(answer_model=path)
        with pytest.raises(NotAllowed, match=f"This release does not have what the answer is checked by \\({path}\\)"):
            operations.approve(row.pk, user=anna, answer=GOOD)
    operations.reject(row.pk, user=anna, reason="Nobody can say.")


def test_a_task_that_is_decided_says_so_before_it_finds_fault_with_the_answer(anna: User, ben: User) -> None:
    row = task(answer_model=DOSE)
    operations.reject(row.pk, user=ben, reason="No.")
    with pytest.raises(NotAllowed, match=r"^ben rejected it already"):
        operations.approve(row.pk, user=anna, answer={})
