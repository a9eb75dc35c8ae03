"""One operation on many rows: which they are, what comes of each, who decides, and how fast it goes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.engine import another_connection, elsewhere
from tests.groups import make_groups
from tests.workflows import rows
from tests.workflows.operations.two import RIGHTS, lead
from workflows import operations
from workflows.engine import maintenance
from workflows.engine.maintenance import Maintenance
from workflows.engine.undo_question import ASKED
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import previews as bulk_previews
from workflows.features.bulk import results as bulk_results
from workflows.features.bulk import telling as bulk_operations
from workflows.features.bulk.extension import BulkExtension
from workflows.features.bulk.hooks import Bulk
from workflows.features.outbox import operations as outbox_operations
from workflows.models import (
    BulkItem,
    BulkOperation,
    Chore,
    Effect,
    Event,
    ManualTask,
    OutboxEvent,
    Signal,
    Workflow,
)
from workflows.operations.bulk_verbs import verbs

SECOND = timedelta(seconds=1)


def member(group: str, name: str = "") -> User:
    make_groups()
    user = User.objects.create_user(name or f"some-{group}", is_staff=True)
    user.groups.set([Group.objects.get(name=group)])
    return user


def chosen(user: User, verb: str = "retry") -> BulkOperation:
    """All workflows."""
    every = Workflow.objects.order_by().values("pk")
    return bulk.choose(verb, every, user=user, chosen_by="all of them")


def started(user: User, verb: str = "retry", **how: Any) -> BulkOperation:
    made = chosen(user, verb)
    bulk.start(made.pk, user=user, reason="The bank is back.", **how)
    return made


def slice_after(made: BulkOperation, seconds: float) -> int:
    """How many items a slice carries out that comes so long after the next one was allowed."""
    BulkOperation.objects.filter(pk=made.pk).update(next_at=timezone.now() - seconds * SECOND)
    return bulk.do_slice(0).changed


def carry_out(made: BulkOperation) -> None:
    """Let the workers do all of it."""
    while slice_after(made, 1):
        pass
    made.refresh_from_db()


def outcome_of(row: Workflow) -> tuple[str, str]:
    return BulkItem.objects.values_list("outcome", "why").get(row=row.pk)


# --- The rows ---------------------------------------------------------------------------------------


def test_what_fails_after_the_choice_is_not_among_the_chosen(boss: User) -> None:
    first, second = rows.failed(), rows.failed()
    made = started(boss)
    late = rows.failed()
    carry_out(made)
    assert (made.selected, made.state) == (2, "done")
    statuses = dict(Workflow.objects.values_list("pk", "status"))
    assert statuses == {first.pk: "PENDING", second.pk: "PENDING", late.pk: "FAILED"}


def test_a_row_that_cannot_is_skipped_and_says_why(boss: User) -> None:
    complete, cancelled, again, good = rows.complete(), rows.cancelled(), rows.failed(), rows.failed()
    made = started(boss)
    Workflow.objects.filter(pk=again.pk).update(completed_at=timezone.now() + SECOND)  # retried, and failed again
    carry_out(made)
    assert [outcome_of(row)[0] for row in (complete, cancelled, again, good)] == ["skipped"] * 3 + ["done"]
    assert all(outcome_of(row)[1] for row in (complete, cancelled, again))
    assert bulk.outcomes(made)[made.pk] == {"": 0, "done": 1, "skipped": 3, "failed": 0}


def retried_by(act: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on `act` retries an item."""
    row = replace(verbs()["retry"], act=act)
    others = tuple(each for each in BulkExtension.bulk_verbs if each.name != "retry")
    monkeypatch.setattr(BulkExtension, "bulk_verbs", (row, *others))


def test_an_item_that_goes_wrong_leaves_nothing_behind_and_the_others_go_on(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = rows.failed(), rows.failed()
    act = verbs()["retry"].act

    def fail(item: BulkItem, **who: Any) -> None:
        act(item, **who)
        if item.row == bad.pk:
            raise ZeroDivisionError

    retried_by(fail, monkeypatch)
    carry_out(started(boss))
    assert [outcome_of(row)[0] for row in (bad, good)] == ["failed", "done"]
    assert "ZeroDivisionError" in outcome_of(bad)[1]
    assert Workflow.objects.get(pk=bad.pk).status == "FAILED"
    assert not Event.objects.filter(workflow=bad, kind="retried").exists()


@pytest.mark.parametrize("number", [0, 3])
def test_no_row_and_too_many_rows_cannot_be_chosen(boss: User, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MOST", 2)
    for _ in range(number):
        rows.failed()
    with pytest.raises(NotAllowed):
        chosen(boss)
    assert not BulkOperation.objects.exists()


def test_what_was_chosen_and_never_started_is_forgotten(boss: User) -> None:
    rows.failed()
    chosen(boss)
    running = started(boss)
    BulkOperation.objects.update(asked_at=timezone.now() - bulk.DRAFTS_KEPT - SECOND)
    new = chosen(boss)
    assert set(BulkItem.objects.values_list("operation", flat=True)) == {running.pk, new.pk}


@pytest.mark.django_db(transaction=True)
def test_what_is_started_at_this_moment_is_not_forgotten(boss: User) -> None:
    rows.failed()
    old = chosen(boss)
    BulkOperation.objects.update(asked_at=timezone.now() - bulk.DRAFTS_KEPT - SECOND)
    with another_connection() as other, other.transaction():
        other.execute("UPDATE workflows_bulkoperation SET state = 'running'")
        chosen(boss)
    assert BulkOperation.objects.get(pk=old.pk).state == "running"


# --- The other verbs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["retry", "acknowledge"])
def test_what_fails_after_it_was_chosen_is_left_for_nobody_has_seen_that(boss: User, verb: str) -> None:
    row = rows.retrying()
    made = started(boss, verb)
    Workflow.objects.filter(pk=row.pk).update(status="FAILED", completed_at=timezone.now())
    carry_out(made)
    assert outcome_of(row)[0] == "skipped"


# --- Who ------------------------------------------------------------------------------------------------


def many(number: int) -> None:
    for _ in range(number):
        rows.failed()


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice does not end early, however busy the machine is."""
    monkeypatch.setattr(bulk, "SLICE", 60.0)


@pytest.fixture
def few_alone(db: None, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many one person may decide on: fewer than usual."""
    monkeypatch.setattr(bulk, "ALONE", 2)
    return 2


def test_of_many_another_user_with_the_right_for_many_has_to_approve_it(few_alone: int) -> None:
    many(few_alone + 1)
    sam, lea = member("support"), member("support lead")
    made = started(sam)
    made.refresh_from_db()
    assert (made.state, slice_after(made, 1)) == ("asked", 0)
    for user in (sam, member("support", "sue")):
        with pytest.raises(NotAllowed):
            bulk.approve(made.pk, user=user)
    bulk.approve(made.pk, user=lea)
    carry_out(made)
    assert (made.state, made.approved_by) == ("done", lea)
    assert set(Event.objects.filter(kind="retried").values_list("actor", flat=True)) == {"some-support"}


@pytest.mark.parametrize(
    ("group", "verb", "state"),
    [
        ("support lead", "retry", "running"),
        ("support lead", "cancel", "asked"),
        ("support", "acknowledge", "running"),
    ],
)
def test_how_many_one_person_may_decide_on(few_alone: int, group: str, verb: str, state: str) -> None:
    many(few_alone + 1)
    assert BulkOperation.objects.get(pk=started(member(group), verb).pk).state == state


@pytest.mark.parametrize("group", ["support lead", "engineer"])
def test_one_person_does_not_decide_that_many_are_charged_again(few_alone: int, group: str) -> None:
    for _ in range(few_alone + 1):
        with_charge(rows.failed, "undone")
    made = started(user := member(group))
    made.refresh_from_db()
    assert made.state == ("asked" if user.has_perm(operations.CANCEL_PAID) else "running")


def test_it_stops_when_its_user_may_not_do_it_any_more_and_nobody_resumes_it(boss: User) -> None:
    rows.failed()
    sam = member("support")
    made = started(sam)
    User.objects.filter(pk=sam.pk).update(is_active=False)
    assert slice_after(made, 1) == 1
    made.refresh_from_db()
    assert (made.state, bulk.outcomes(made)[made.pk][""]) == ("paused", 1)
    with pytest.raises(NotAllowed, match="some-support"):
        bulk.resume(made.pk, user=boss)
    BulkOperation.objects.update(state="asked")
    with pytest.raises(NotAllowed, match="some-support"):
        bulk.approve(made.pk, user=boss)


def test_who_may_not_do_it_to_one_may_not_do_it_to_many(boss: User) -> None:
    rows.failed()
    made, owen = started(boss), member("auditor")
    for refused in (
        lambda: chosen(owen),
        lambda: bulk.start(made.pk, user=owen, reason="So"),
        lambda: bulk.approve(made.pk, user=owen),
        lambda: bulk.pause(made.pk, user=owen),
        lambda: bulk.resume(made.pk, user=owen),
        lambda: bulk.stop(made.pk, user=owen),
    ):
        with pytest.raises(PermissionDenied):
            refused()


def test_nobody_starts_what_another_user_has_chosen(boss: User) -> None:
    rows.failed()
    made = chosen(boss)
    with pytest.raises(NotAllowed):
        bulk.start(made.pk, user=member("engineer"), reason="So")


# --- When -----------------------------------------------------------------------------------------------


def test_it_keeps_its_pace_and_catches_up_with_two_seconds_at_the_most(boss: User) -> None:
    many(40)
    made = started(boss, pace=5)
    assert bulk.do_slice(0).changed == 1
    assert slice_after(made, -0.9) == 0
    assert slice_after(made, 1.1) == 6
    assert slice_after(made, 60) in (11, 12)
    assert slice_after(made, -3600) == 1, "a clock that was set back stops nothing"


def test_it_is_paused_resumed_and_cancelled_halfway(boss: User) -> None:
    many(3)
    made = started(boss)
    bulk.do_slice(0)
    bulk.pause(made.pk, user=boss)
    assert slice_after(made, 1) == 0
    bulk.resume(made.pk, user=boss)
    assert bulk.do_slice(0).changed == 1
    assert "1 of 3" in bulk.stop(made.pk, user=boss)
    assert slice_after(made, 1) == 0
    assert bulk.outcomes(made)[made.pk] == {"": 1, "done": 2, "skipped": 0, "failed": 0}
    with pytest.raises(NotAllowed):
        bulk.resume(made.pk, user=boss)


def test_beside_a_verb_that_only_a_later_release_knows_the_others_are_carried_out(boss: User) -> None:
    rows.failed()
    of_later, ours = started(boss), started(boss)
    BulkOperation.objects.filter(pk=of_later.pk).update(verb="a later one", next_at=timezone.now() - SECOND)
    carry_out(ours)
    assert ours.state == "done"
    with pytest.raises(NotAllowed):
        bulk.pause(of_later.pk, user=boss)


@pytest.mark.django_db(transaction=True)
def test_an_item_that_ends_its_workers_is_set_aside_alone_and_keeps_no_other_waiting(
    boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, deadly, _ = [rows.failed() for _ in range(3)]
    bad, good = started(boss, pace=bulk.FASTEST), started(boss, "acknowledge")
    retry = verbs()["retry"].act
    tried: list[int] = []

    def end(item: BulkItem, **who: Any) -> None:
        tried.append(item.row)
        if item.row == deadly.pk:
            raise KeyboardInterrupt
        retry(item, **who)

    def work() -> None:
        with suppress(KeyboardInterrupt):
            Maintenance([Bulk()])._run_slice()

    retried_by(end, monkeypatch)
    monkeypatch.setattr(maintenance, "ENGINE_TASKS", {})
    Maintenance([Bulk()]).make_known()
    for _ in range(12):
        BulkOperation.objects.update(next_at=timezone.now() - SECOND)
        Chore.objects.update(due_at=timezone.now() - SECOND)
        elsewhere(work)
    # Once beside the first; once, as that was done, beside the third; and then by itself.
    assert (tried.count(deadly.pk), bulk.outcomes(bad)[bad.pk]) == (4, {"": 0, "done": 2, "skipped": 0, "failed": 1})
    assert "3 workers in a row died" in bad.items.get(row=deadly.pk).why
    good.refresh_from_db()
    assert (good.state, Chore.objects.get().set_aside_at) == ("done", None)


def paused_for_another(bad: BulkOperation, boss: User) -> BulkOperation:
    bulk.pause(bad.pk, user=boss, reason="It ends the workers.")
    return started(boss, "run_now")


def beside_a_retry_of_a_family(bad: BulkOperation, boss: User) -> BulkOperation:
    parent = rows.cancelled()
    child = rows.cancelled(parent=parent, child_key="1", parent_wait="all")
    Signal.objects.create(
        workflow_id=child.pk, source="engine", dedupe_key="1", name="cancel", payload={}, closed_at=Now()
    )
    Chore.objects.update(after=bad.pk)  # it was the last that had its turn
    operations.retry(parent.pk, user=boss, reason="It was right.")
    return BulkOperation.objects.latest("pk")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("other", [paused_for_another, beside_a_retry_of_a_family])
def test_no_item_is_blamed_for_the_deaths_of_another_operation(
    other: Callable[[BulkOperation, User], BulkOperation], boss: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(item: BulkItem, **who: Any) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        with suppress(KeyboardInterrupt):
            Maintenance([Bulk()])._run_slice()

    rows.failed()
    bad = started(boss)
    retried_by(end, monkeypatch)
    monkeypatch.setattr(maintenance, "ENGINE_TASKS", {})
    Maintenance([Bulk()]).make_known()
    for times in range(1 + maintenance.DEATHS):
        if times == maintenance.DEATHS:
            good = other(bad, boss)
        BulkOperation.objects.update(next_at=timezone.now() - SECOND)
        Chore.objects.update(due_at=timezone.now() - SECOND)
        elsewhere(work)
    assert not good.items.filter(outcome="failed").exists()
    assert good.items.exclude(outcome="").exists()


# --- What it would do -----------------------------------------------------------------------------------


def with_charge(make: Any, state: str) -> Workflow:
    payload = {"checkout": {"amount_cents": 14500, "currency": "USD"}}
    row: Workflow = make(workflow_type="onboarding", payload=payload)
    key, result = f"{row.pk}", {"charge_id": "ch_1"}
    Effect.objects.create(
        workflow=row, step="execute_checkout", state=state, result=result, idempotency_key=key, attempt=1
    )
    return row


def test_the_preview_counts_what_can_and_what_cannot_and_which_money_moves(boss: User) -> None:
    rows.failed(), rows.complete(), rows.cancelled(), with_charge(rows.failed, "undone")
    shown = bulk_previews.preview(chosen(boss), boss)
    assert (shown.can, shown.cannot) == (2, [(1, "cancelled"), (1, "complete")])
    assert shown.warning == "For 1 of them a retry alone does not help: look at why they failed."
    assert "$145.00 is charged again, for 1" in shown.money
    shown = bulk_previews.preview(chosen(sam := member("support")), sam)
    assert (shown.can, len(shown.cannot)) == (1, 3)
    assert shown.money == ""


def test_the_preview_adds_up_what_moves_without_reading_whole_payloads(boss: User) -> None:
    for payload in (None, None, {"checkout": {"amount_cents": 1200, "currency": "jpy"}}, {"checkout": {}}):
        row = with_charge(rows.failed, "undone")
        Workflow.objects.filter(pk=row.pk).update(payload=payload or row.payload)
    made = chosen(boss)
    with CaptureQueriesContext(connection) as queries:
        shown = bulk_previews.preview(made, boss)
    assert shown.money == "$290.00 and 1,200 JPY and more is charged again, for 4 of them: it was refunded."
    assert len(queries) == 2, "of the ids and the codes, beside those of postgres.statements"
    assert not [each for each in queries if '"payload"' in each["sql"]]


@pytest.mark.parametrize(
    ("verb", "group"),
    [
        *((verb, "support lead") for verb in ("retry", "cancel", "run_now", "acknowledge")),
        *((verb, "support") for verb in ("retry", "cancel")),
    ],
)
def test_the_preview_is_what_happens(db: None, verb: str, group: str) -> None:
    for make in rows.IN_STATE.values():
        make()
    rows.given_up(), rows.failed(acknowledged_failure=(now := timezone.now()), completed_at=now)
    with_charge(rows.failed, "undone"), with_charge(rows.retrying, "done"), with_charge(rows.failed, "unknown")
    user = member(group)
    made = chosen(user, verb)
    shown = bulk_previews.preview(made, user)
    assert shown.can + sum(number for number, _ in shown.cannot) == made.selected
    assert bulk_previews.can_any(made, user, first=1)
    bulk.start(made.pk, user=user, reason="So")
    if (verb, group) == ("retry", "support lead"):  # one of them is charged again, and that takes two people
        bulk.approve(made.pk, user=lead("dan", "start_bulkoperation", *RIGHTS))
    carry_out(made)
    assert bulk.outcomes(made)[made.pk]["done"] == shown.can
    assert not bulk_previews.can_any(made, user, first=1)
    events = Event.objects.filter(detail__bulk=made.pk, detail__reason="So")
    done = events.filter(Q(actor=user.username) | Q(detail__first=user.username))
    assert done.count() == shown.can


# --- What became of them --------------------------------------------------------------------------------


def end(row: Workflow, **columns: Any) -> None:
    """Let its run be over; or not yet."""
    now = None if columns.get("status") == "PENDING" else timezone.now()
    values = {"status": "FAILED", "completed_at": now, "cancelled_at": None, **columns}
    Workflow.objects.filter(pk=row.pk).update(**values)
    rows.event(row, "failed")


# What may happen to a workflow after a bulk operation, and how that is told of each verb.
LIVES: dict[str, Callable[[Workflow, User], Any]] = {
    "completes": lambda row, boss: end(row, status="COMPLETE"),
    "goes on": lambda row, boss: end(row, status="PENDING"),
    "is being reversed": lambda row, boss: end(row, status="PENDING", compensating=True),
    "is decided on": lambda row, boss: end(row, status="PENDING", compensating=True, waiting_for=ASKED),
    "fails": lambda row, boss: end(row),
    "is cancelled": lambda row, boss: end(row, cancelled_at=timezone.now()),
    "is retried": lambda row, boss: [end(row), operations.retry(row.pk, user=boss), end(row)],
    "is corrected": lambda row, boss: [end(row), rows.event(row, "corrected", actor="bob")],
    "is no duplicate": lambda row, boss: [end(row), rows.event(row, "not_a_duplicate", actor="bob")],
    "is deleted": lambda row, boss: rows.delete(row),
}
TOLD = {
    "retry": "1 complete, 1 under way, 1 with a reversal to decide, 1 reversing, 1 failed again, 1 cancelled, 3 taken "
    "up again since, 1 deleted since",
    "run_now": "1 complete, 1 under way, 1 with a reversal to decide, 1 reversing, 1 failed, 1 cancelled, 3 taken up "
    "again since, 1 deleted since",
    "cancel": "1 completed before it could be cancelled, 1 under way, 1 with a reversal to decide, 1 reversing, 1 "
    "failed before it could be cancelled, 1 cancelled, 3 taken up again since, 1 deleted since",
}


@pytest.mark.parametrize("verb", TOLD)
def test_what_became_of_each_is_told_by_the_run_that_the_operation_is_about(boss: User, verb: str) -> None:
    rows.complete()
    made_of = {life: (rows.failed if verb == "retry" else rows.retrying)() for life in LIVES}
    made = started(boss, verb)
    carry_out(made)
    for life, live in LIVES.items():
        live(made_of[life], boss)
    counted, became = bulk.outcomes(made)[made.pk], bulk_results.became(made)[made.pk]
    did = bulk_operations.done_to(made)
    assert bulk_operations.sentence(made, counted, became) == f"10 of 11 are {did}; 1 skipped. {TOLD[verb]}."


def test_of_what_is_redelivered_it_is_told_whether_it_was_sent(boss: User) -> None:
    sent, waits, given_up, again, gone = [rows.outbox_event() for _ in range(5)]
    made = bulk.choose("redeliver_event", OutboxEvent.objects.values("pk"), user=boss, chosen_by="all of them")
    bulk.start(made.pk, user=boss, reason="It is back.")
    carry_out(made)
    OutboxEvent.objects.filter(pk=sent.pk).update(state="sent")
    OutboxEvent.objects.filter(pk__in=[given_up.pk, again.pk]).update(state="given_up")
    outbox_operations.redeliver_event(again.pk, user=boss)
    gone.delete()
    told = "1 sent, 1 to be sent, 1 given up again, 1 taken up again since, 1 deleted since"
    assert bulk_operations.results(made, bulk_results.became(made)[made.pk]) == told
    assert waits.pk


@pytest.mark.parametrize("verb", ["acknowledge", "discard"])
def test_what_is_done_at_once_has_no_result_of_its_own(boss: User, verb: str) -> None:
    rows.failed(), rows.undelivered_message()
    of = verbs()[verb].model._default_manager.order_by().values("pk")
    made = bulk.choose(verb, of, user=boss, chosen_by="all of them")
    bulk.start(made.pk, user=boss, reason="So")
    carry_out(made)
    counted, became = bulk.outcomes(made)[made.pk], bulk_results.became(made)[made.pk]
    assert bulk_operations.sentence(made, counted, became) == f"It is {bulk_operations.done_to(made)}."
    assert bulk_operations.tone(made, counted, became) == "good"


# --- Tasks ----------------------------------------------------------------------------------------------


def test_tasks_are_assigned_to_a_colleague_but_not_one_that_somebody_has_taken_since(db: None) -> None:
    lea, carla, ben = member("support lead"), member("approver", "carla"), member("approver", "ben")
    free, taken, closed = [rows.open_task(rows.waiting(task=False)) for _ in range(3)]
    ManualTask.objects.filter(pk=closed.pk).update(state="expired")
    every = ManualTask.objects.order_by().values("pk")
    made = bulk.choose("assign", every, user=lea, chosen_by="all of them")
    operations.claim_task(taken.pk, user=ben)
    shown = bulk_previews.preview(made, lea)
    assert (shown.can, shown.cannot) == (2, [(1, "not open any more")])
    bulk.start(made.pk, user=lea, reason="You know them.", pace=50, to=carla.pk)
    carry_out(made)
    assert dict(ManualTask.objects.values_list("pk", "assignee")) == {
        free.pk: carla.pk,
        taken.pk: ben.pk,
        closed.pk: None,
    }
    assert dict(BulkItem.objects.values_list("row", "outcome")) == {
        free.pk: "done",
        taken.pk: "skipped",
        closed.pk: "skipped",
    }
    assert Event.objects.get(kind="task_assigned").detail["reason"] == "You know them."


def test_what_waits_for_a_second_person_is_shown_to_those_who_may_approve_it(few_alone: int) -> None:
    many(few_alone + 1)
    sam, lea = member("support"), member("support lead")
    started(sam)
    asked, running = started(lea, "cancel"), started(lea)
    found = {user.username: [each.pk for each in bulk.to_approve(user)] for user in (sam, lea, member("engineer"))}
    assert found == {
        "some-support": [],
        "some-support lead": [asked.pk - 1],
        "some-engineer": [asked.pk - 1, asked.pk],
    }
    assert running.pk not in found["some-engineer"]
    with pytest.raises(NotAllowed, match="You have asked for it yourself"):
        bulk.approve(asked.pk, user=lea)
