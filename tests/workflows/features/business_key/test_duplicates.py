"""One patient, once: of the workflows with one business key one runs at a time; the same again ends, uncharged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection, transaction

from tests import engine
from tests.engine import another_connection, define, do_maintenance, kinds, submit, until_blocked, worker
from tests.workflows.cancelling import reread
from tests.workflows.undoing import World, to_rest
from workflows import operations
from workflows.before_undo import ask
from workflows.definition import Brake
from workflows.errors import ClaimLost, NotAllowed, StepError
from workflows.features.business_key import duplicates, holders
from workflows.features.business_key.operations import not_a_duplicate
from workflows.models import Attempt, BusinessKeyHash, Effect, Event, ManualTask, Wait, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.search import normalise, rows
from workflows.search.search_keys import SearchKey
from workflows.signals import store
from workflows.state.attempt_log import OpenAttempt
from workflows.waits import wait_for_signal
from workflows.wording import Money, Wording

pytestmark = [*engine.ENGINE, pytest.mark.slow]

JANE = {"email": "jane@example.com", "first_name": "Jane", "born": "1980-02-03"}
PATIENT: dict[str, Any] = {"patient": JANE, "program": "body", "token": "tok_1", "plan": "monthly"}
MIND, SOUL = {**PATIENT, "program": "mind"}, {**PATIENT, "program": "soul"}
KEY = {
    "business_key": ("patient.email", "program"),
    "same_person": ("patient.first_name", "patient.born"),
    "secret_fields": ("token",),
    "search_keys": {"email": SearchKey("patient.email", normalise.email)},
    "wording": Wording(money=Money("charge", "amount", "currency", reference="id", refund="id")),
}


# By number: what is sent says nothing of it, or no two would be alike.
PAUSES: set[int] = set()
FAILS: set[int] = set()


def pause(*, workflow: Workflow, context: Any) -> None:
    if workflow.pk in PAUSES:
        wait_for_signal(workflow, "pause", "go", timeout=timedelta(hours=1))
    if workflow.pk in FAILS:
        raise StepError("No.", code="refused")


@pytest.fixture(autouse=True)
def known(world: World, engine: None) -> None:
    PAUSES.clear()
    FAILS.clear()
    define([world.step("charge"), pause], **KEY)


def send(payload: Mapping[str, Any] = PATIENT, *, pauses: bool = False, fails: bool = False, **more: Any) -> Workflow:
    workflow = submit({**payload, **more})
    PAUSES.update([workflow.pk] * pauses)
    FAILS.update([workflow.pk] * fails)
    return workflow


def like(**patient: Any) -> dict[str, Any]:
    return {**PATIENT, "patient": {**JANE, **patient}}


def run(**options: Any) -> int:
    """Process what is due, as often as anything is; return how often that was."""
    this, times = worker(**options), 0
    while this.process_next():
        times += 1
        assert times < 100
    return times


def under_way(payload: Mapping[str, Any] = PATIENT, **more: Any) -> Workflow:
    """A workflow that has charged, and waits for something else."""
    workflow = send(payload, pauses=True, **more)
    run()
    assert reread(workflow).waiting_for == "the signal go"
    return workflow


def go_on(workflow: Workflow) -> None:
    store.send(source="test", dedupe_key=str(uuid4()), name="go", workflow_id=workflow.pk, payload={})
    run()


def standing(*workflows: Workflow) -> list[str]:
    """Of each its state, and why it failed."""
    return [" ".join(filter(None, [(row := reread(each)).state, row.last_error_code])) for each in workflows]


def test_the_second_waits_and_ends_as_a_duplicate_when_the_first_is_complete(world: World) -> None:
    first = under_way()
    second = send(like(email=" Jane@Example.com ", first_name="JANE "), program="BODY", token="tok_2")
    assert run() == 1
    assert reread(second).waiting_for == f"workflow {first.pk}, which is under way for the same business key"
    assert standing(second) == ["waiting"]
    go_on(first)
    assert standing(first, second) == ["complete", "failed duplicate_of"]
    assert world.log == ["charge"]
    assert kinds(second) == ["waiting", "duplicate"]
    assert Event.objects.get(kind="duplicate").detail == {"first": first.pk, "error_code": "duplicate_of"}
    assert reread(second).acknowledged_failure == reread(second).completed_at, "it needs nobody"


def test_it_goes_on_when_the_first_has_failed_and_is_undone(world: World) -> None:
    world.errors["undo charge"] = [StepError("Not now.")]
    first, second = under_way(fails=True), send()
    run()
    go_on(first)
    assert standing(first, second) == ["compensating refused", "waiting"]
    to_rest(first)
    run()
    assert standing(first, second) == ["failed refused", "complete"]
    assert world.log == ["charge", "undo charge", "undo charge", "charge"]


def test_whichever_is_taken_up_first_has_the_key_though_it_came_later() -> None:
    earlier = submit(PATIENT, invisible_until=engine.ClockTimestamp() + timedelta(hours=1))
    later = under_way()
    engine.make_due(earlier)
    run()
    go_on(later)
    assert standing(later, earlier) == ["complete", "failed duplicate_of"]


def test_of_three_the_third_goes_on_when_the_first_two_have_failed() -> None:
    first, second, third = under_way(fails=True), send(fails=True), send()
    run()
    assert standing(second, third) == ["waiting", "waiting"]
    go_on(first)
    assert standing(first, second, third) == ["failed refused", "failed refused", "complete"]


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        (MIND, {}),
        ({"program": "body"}, {}),
        ({**PATIENT, "program": " "}, {}),
        ({**PATIENT, "program": [5]}, {}),
        ({**PATIENT, "patient": {"email": "nobody"}}, {}),
        (PATIENT, {"tenant": "another"}),
    ],
)
def test_what_is_not_the_same_or_has_no_key_is_held_up_by_nothing(other: Mapping[str, Any], fields: Any) -> None:
    submit(dict(other), **fields)
    under_way()
    third = submit(dict(other), **fields)
    run()
    assert standing(third) == [
        "failed duplicate_of" if "tenant" in fields or other.get("program") == "mind" else "complete"
    ]


def test_a_retry_gives_way_to_the_one_that_has_taken_its_place(world: World, ada: User) -> None:
    first = send(fails=True)
    run()
    second = under_way()
    operations.retry(first.pk, user=ada)
    run()
    assert standing(first) == ["waiting refused"]
    go_on(second)
    assert standing(first, second) == ["failed duplicate_of", "complete"]
    assert world.log.count("charge") == 2


def test_a_retry_that_nobody_has_replaced_goes_on_before_the_one_that_waits(ada: User) -> None:
    first, second = under_way(fails=True), send()
    run()
    with engine.no_maintenance():
        operations.cancel(first.pk, user=ada, reason="By mistake.")
        assert worker().process_next(), "what it did is undone"
    FAILS.clear()
    PAUSES.clear()
    operations.retry(first.pk, user=ada)
    run()
    assert standing(first, second) == ["complete", "failed duplicate_of"]


@pytest.mark.parametrize("state", ["kept", "done", "unknown"])
def test_while_a_charge_of_one_that_failed_stands_or_may_nothing_is_done_a_second_time(state: str) -> None:
    first = send(fails=True)
    run()
    Effect.objects.filter(workflow=first, undo=False).update(state=state, result={"id": "ch_1"})
    second = send(pauses=True)
    run()
    assert standing(second) == ["waiting"]
    assert question_of(second).facts[0][1].endswith("has failed, and a charge or another call of it stands, or may.")
    Effect.objects.filter(workflow=first, undo=False).update(state="undone")
    assert engine.again(second).waiting_for == "the signal go"
    assert question_of(second).state == "closed", "it has answered itself"


def test_one_that_is_cancelled_or_expires_while_it_waits_has_called_nothing(world: World, ada: User) -> None:
    under_way()
    cancelled, expired = send(), send()
    run()
    operations.cancel(cancelled.pk, user=ada, reason="Asked for.")
    Workflow.objects.filter(pk=expired.pk).update(expires_at=expired.created_at)
    do_maintenance()
    run()
    assert standing(cancelled, expired) == ["cancelled cancelled", "failed expired"]
    assert world.log == ["charge"]


def test_the_end_of_one_that_nobody_told_of_is_found_by_maintenance(ada: User) -> None:
    define([pause], **KEY)  # without a call it is FAILED as soon as it is cancelled, and no worker knows
    first, second, third = under_way(), send(), send(MIND, pauses=True)
    fourth, rescheduled = submit(MIND), send()
    run()
    Workflow.objects.filter(pk=rescheduled.pk).update(wake_on=[])
    operations.cancel(first.pk, user=ada, reason="Asked for.")
    run()
    assert standing(second, fourth) == ["waiting", "waiting"]
    do_maintenance()
    assert run() == 1, "the fourth still waits for the third, and nothing cuts a delay short"
    assert standing(second, third, fourth, rescheduled) == ["complete", "waiting", "waiting", "waiting"]


# --- The same again, another person, another time -----------------------------------------------------


def question_of(workflow: Workflow) -> ManualTask:
    return ManualTask.objects.filter(workflow=workflow, task_type="possible_duplicate").latest("pk")


def answer(workflow: Workflow, user: User, *, approve: bool) -> None:
    decide = operations.approve if approve else operations.reject
    decide(question_of(workflow).pk, user=user, reason="She said so.")
    run()


def ended(workflow: Workflow, hours: float) -> None:
    Workflow.objects.filter(pk=workflow.pk).update(completed_at=ClockTimestamp() - timedelta(hours=hours))


@pytest.mark.parametrize(("hours", "becomes"), [(23.9, "failed duplicate_of"), (24.1, "complete")])
def test_a_patient_who_comes_back_another_day_means_it(world: World, hours: float, becomes: str) -> None:
    first = send()
    run()
    ended(first, hours)
    second = send()
    run()
    assert standing(second) == [becomes]
    assert world.log.count("charge") == 1 + (becomes == "complete")


def test_when_it_was_accepted_counts_and_not_when_a_worker_takes_it_up() -> None:
    first = send()
    run()
    ended(first, 24 * 7)
    for plan, hours_later, becomes in (("yearly", 25, "complete"), ("monthly", 23, "failed duplicate_of")):
        late = send(plan=plan)
        ago = timedelta(hours=24 * 7 - hours_later)
        Workflow.objects.filter(pk=late.pk).update(created_at=ClockTimestamp() - ago)
        run()
        assert standing(late) == [becomes]


@pytest.mark.parametrize(
    ("patient", "becomes"),
    [
        ({"first_name": "Joan", "born": "2011-05-06"}, "complete"),
        ({"first_name": "Jnae"}, "waiting"),
        ({"born": "2011-05-06"}, "waiting"),
        ({"first_name": ["Joan"], "born": "2011-05-06"}, "waiting"),
        ({"first_name": " jane"}, "failed duplicate_of"),
    ],
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_people_who_share_an_address_are_told_apart(
    world: World, patient: dict[str, Any], becomes: str, is_complete: bool
) -> None:
    first = send() if is_complete else under_way()
    run()
    second = send(like(**patient))
    run()
    waits = becomes == "failed duplicate_of" and not is_complete
    assert standing(second) == ["waiting" if waits else becomes]
    assert ManualTask.objects.exists() == (becomes == "waiting"), "a twin, or a typo"
    assert world.log.count("charge") == 1 + (becomes == "complete")
    if not is_complete:
        go_on(first)
        assert standing(second) == [becomes], "the question stays"


def test_what_differs_is_asked_about_within_the_hour_by_its_names_alone(world: World, ada: User) -> None:
    first = send(plan="monthly", odd={"Jane's own": 1}, count=1)
    run()
    second = send(plan="canary", odd={"Jane's own": 2}, count=1.0, token="tok_2")
    run()
    asked = question_of(second)
    assert asked.due_at is not None
    assert asked.due_at - asked.created_at <= timedelta(hours=1)
    facts = dict(asked.facts)
    assert facts["They differ in"] == "A field whose name is not shown, Count, Plan"
    assert "canary" not in f"{asked.question}{facts}"
    assert duplicates.differing_from(second, first.pk) == ["A field whose name is not shown", "Count", "Plan"]
    assert world.log == ["charge"]


def test_a_single_field_tells_nobody_apart_for_it_may_be_a_typo(world: World) -> None:
    define([world.step("charge"), pause], **{**KEY, "same_person": "patient.first_name"})
    first, second = send(), send(like(first_name="Jnae"))
    run()
    assert standing(first, second) == ["complete", "waiting"]


def test_what_was_emptied_is_asked_about_and_not_said_to_be_corrected_or_another_s() -> None:
    first = send()
    run()
    Workflow.objects.filter(pk=first.pk).update(payload={"amount": 5}, emptied_at=ClockTimestamp())
    second = send()
    run()
    assert [name for name, _ in question_of(second).facts] == ["The other one", "They differ in"]
    assert "deleted" in question_of(second).facts[1][1]


@pytest.mark.parametrize("payload", [like(first_name="Joan"), {**PATIENT, "plan": "x"}])
def test_the_answer_decides_and_is_not_asked_for_again(ada: User, payload: Any) -> None:
    first, meant, not_meant, nobody_says, meant_too = send(), *(send(payload) for _ in range(4))
    run()
    answer(not_meant, ada, approve=False)
    assert reread(not_meant).acknowledged_failure == reread(not_meant).completed_at
    assert standing(not_meant) == ["failed duplicate_differs"]
    with pytest.raises(NotAllowed, match="Another workflow has done the same"):
        operations.retry(not_meant.pk, user=ada)
    engine.expire(nobody_says)
    run()
    assert standing(nobody_says) == ["failed duplicate_differs"]
    assert reread(nobody_says).acknowledged_failure is None, "it is told, and uncharged"
    answer(meant, ada, approve=True)
    answer(meant_too, ada, approve=True)
    assert standing(first, meant, meant_too) == ["complete", "complete", "waiting"], "it is the same as the other"
    not_a_duplicate(not_meant.pk, user=ada, reason="She did mean it.")
    run()
    assert standing(not_meant) == ["complete"]


def test_one_that_is_not_meant_besides_takes_the_place_of_one_that_fails(ada: User) -> None:
    first, asked, unasked = under_way(fails=True), send(like(born="1980-03-02")), send(like(born="1980-03-03"))
    run()
    answer(asked, ada, approve=False)
    assert standing(asked, unasked) == ["waiting", "waiting"]
    go_on(first)
    assert standing(first, asked) == ["failed refused", "complete"]
    assert question_of(unasked).state == "open", "it is asked of the one that has completed instead"
    assert ManualTask.objects.open().count() == 1, "an answer about the other one would decide nothing"


@pytest.mark.parametrize("meanwhile", ["", "rescheduled", "rejected"])
def test_nothing_is_left_to_be_asked_when_the_one_under_way_fails(ada: User, meanwhile: str) -> None:
    first, unsure = under_way(fails=True), send(like(born="1980-03-02"), pauses=True)
    run()
    if meanwhile == "rescheduled":  # as a worker does that does not know the type
        Workflow.objects.filter(pk=unsure.pk).update(wake_on=[])
    if meanwhile == "rejected":
        operations.reject(question_of(unsure).pk, user=ada, reason="She said so.")
    if meanwhile:
        Workflow.objects.filter(pk=unsure.pk).update(invisible_until=ClockTimestamp() + timedelta(hours=1))
    with engine.no_maintenance():
        go_on(first)
    assert (engine.again if meanwhile else reread)(unsure).waiting_for == "the signal go", "it takes its place"
    assert question_of(unsure).state == (meanwhile if meanwhile == "rejected" else "closed")


def test_a_no_counts_though_what_was_in_the_way_is_gone_meanwhile(world: World, ada: User) -> None:
    refunded, emptied = send(fails=True), send(MIND)
    run()
    Effect.objects.filter(workflow=refunded, undo=False).update(state="kept")
    of_refunded, of_emptied, meant = send(), send(MIND, plan="x"), send(MIND, plan="y")
    run()
    Effect.objects.filter(workflow=refunded, undo=False).update(state="undone")
    BusinessKeyHash.objects.filter(workflow=emptied).delete()
    operations.run_now(of_emptied.pk, user=ada)
    run()
    assert standing(of_emptied) == ["waiting"], "what is complete is asked about until somebody answers"
    Wait.objects.filter(workflow=of_refunded).update(outcome="rejected")  # as a worker that dies then has read it
    answer(of_refunded, ada, approve=False)
    answer(of_emptied, ada, approve=False)
    answer(meant, ada, approve=True)
    assert standing(of_refunded, of_emptied, meant) == ["failed duplicate_differs"] * 2 + ["complete"]
    assert world.log.count("charge") == 3
    operations.retry(of_refunded.pk, user=ada)
    run()
    assert standing(of_refunded) == ["complete"]


def test_a_yes_counts_though_the_other_one_was_retried_meanwhile(ada: User) -> None:
    first = send(fails=True)
    run()
    Effect.objects.filter(workflow=first, undo=False).update(state="kept", result={"id": "ch_1"})
    meant = send()
    run()
    FAILS.clear()
    PAUSES.add(first.pk)
    operations.retry(first.pk, user=ada)
    run()
    answer(meant, ada, approve=True)
    assert standing(first, meant) == ["waiting", "complete"]


def test_one_that_was_charged_itself_never_ends_in_silence(world: World, ada: User) -> None:
    define([world.step("charge", undo=None), pause], **KEY)
    charged = send(MIND, fails=True)
    run()
    Effect.objects.filter(workflow=charged).update(result={"id": "ch_1"})
    complete = send()
    run()
    Workflow.objects.filter(pk=charged.pk).update(payload=PATIENT)  # as a correction does
    operations.retry(charged.pk, user=ada)
    run()
    assert standing(charged) == ["waiting refused"]
    answer(charged, ada, approve=False)
    assert standing(charged) == ["failed duplicate_of"]
    assert reread(charged).acknowledged_failure is None, "its charge stands"
    ended(complete, 24 * 7)
    returns = send(pauses=True)
    run()
    assert "stands, or may" in question_of(returns).facts[0][1], "a week later, too"


def test_the_calls_of_a_duplicate_are_undone_without_another_question(world: World, ada: User) -> None:
    define([world.step("charge", undo=None), pause], **KEY)
    charged = send(MIND, fails=True)
    run()
    Effect.objects.filter(workflow=charged).update(result={"id": "ch_1"})
    send()
    run()
    Workflow.objects.filter(pk=charged.pk).update(payload=PATIENT)  # as a correction does
    operations.retry(charged.pk, user=ada)
    run()
    define([world.step("charge"), pause], before_undo=ask("billing"), **KEY)
    answer(charged, ada, approve=False)
    assert (standing(charged), world.log[-1]) == (["failed duplicate_of"], "undo charge")


def test_the_end_of_one_that_fails_wakes_the_first_in_line_only(world: World) -> None:
    define([world.step("charge"), pause], brake=Brake(failures=1000), **KEY)
    first, behind, last = under_way(fails=True), [send(fails=True) for _ in range(11)], send()
    run()
    assert standing(*behind, last) == ["waiting"] * 12
    store.send(source="test", dedupe_key="1", name="go", workflow_id=first.pk, payload={})
    do_maintenance()
    while worker().process_next():
        do_maintenance()
    assert standing(first, *behind, last) == ["failed refused"] * 12 + ["complete"]
    waited, failed_and_undone = 1, 2
    assert Attempt.objects.count() == 12 * (waited + failed_and_undone) + waited + 1


def test_the_end_of_one_that_completes_wakes_all(world: World) -> None:
    first, asked, behind = under_way(), send(plan="yearly"), [send() for _ in range(4)]
    run()
    with engine.no_maintenance():
        go_on(first)
    assert question_of(asked).state == "open", "and it holds up nobody"
    assert standing(*behind) == ["failed duplicate_of"] * 4
    assert Attempt.objects.filter(workflow__in=behind).count() == 8


# --- Not a duplicate ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_person_may_say_that_it_is_no_duplicate_and_a_third_is_one_of_both(ada: User, is_complete: bool) -> None:
    first = under_way(fails=not is_complete)
    if is_complete:
        go_on(first)
    second = send(pauses=True)
    run()
    not_a_duplicate(second.pk, user=ada, reason="Her daughter.")
    third = send()
    run()
    assert reread(second).waiting_for == "the signal go"
    assert standing(third) == ["failed duplicate_of" if is_complete else "waiting"]
    if not is_complete:
        go_on(first)
        assert standing(first, third) == ["failed refused", "waiting"]
    go_on(second)
    assert standing(second, third) == ["complete", "failed duplicate_of"]
    assert Event.objects.get(kind="not_a_duplicate").detail == {"reason": "Her daughter."}


def test_only_what_waits_for_another_or_was_a_duplicate_can_be_said_to_be_none(ada: User) -> None:
    first, failed = under_way(), send(MIND, fails=True)
    second = send()
    run()
    for workflow, state in ((first, "waiting"), (failed, "failed")):
        with pytest.raises(NotAllowed, match=f"this one is {state}"):
            not_a_duplicate(workflow.pk, user=ada, reason="Her daughter.")
    operations.retry(failed.pk, user=ada)
    Workflow.objects.filter(pk=failed.pk).update(last_error_code="duplicate_of")
    with pytest.raises(NotAllowed, match="this one is queued"):
        not_a_duplicate(failed.pk, user=ada, reason="Her daughter.")
    support = user_who_may("retry_workflow")
    with pytest.raises(NotAllowed, match="ask a support lead"):
        not_a_duplicate(second.pk, user=support, reason="Her daughter.")


def user_who_may(permission: str) -> User:
    user = User.objects.create_user("anna", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename=permission))
    return user


# --- The secret, and workflows of before --------------------------------------------------------------


def test_a_new_secret_changes_nothing_while_it_is_put_in_place(settings: Any) -> None:
    settings.SEARCH_KEYS = ["old"]
    first, second, twice = under_way(), send(), [submit(SOUL), submit(SOUL)]
    run()
    settings.SEARCH_KEYS = ["new", "old"]
    third = send()
    run()
    settings.SEARCH_KEYS = ["old"]  # a worker that has not been restarted yet
    late = send(MIND, pauses=True)
    run()
    settings.SEARCH_KEYS = ["new", "old"]
    progress = rows.begin()
    meanwhile = send({**PATIENT, "program": "heart"}, pauses=True)
    run()
    for _ in (*rows.fill(progress), *rows.remove_old(progress)):
        pass
    assert progress.too_new == 0, "no process has to be restarted for it"
    settings.SEARCH_KEYS = ["new"]
    waiting = [send(), submit(MIND), submit({**PATIENT, "program": "heart"})]
    run()
    assert standing(second, third, late, meanwhile, *waiting) == ["waiting"] * 7
    assert [each.workflow_id for each in duplicates.others_of(twice[0])] == [twice[1].pk]
    go_on(first)
    do_maintenance()
    run()
    assert standing(second, third, waiting[0]) == ["failed duplicate_of"] * 3


def test_what_is_under_way_or_complete_from_before_or_left_a_call_counts_once_it_has_its_hash(world: World) -> None:
    define([world.step("charge"), pause])
    send()
    begun, queued = send(MIND, pauses=True), submit(SOUL, queue="b")
    send(SOUL, fails=True)
    heart, skin = {**PATIENT, "program": "heart"}, {**PATIENT, "program": "skin"}
    kept, charged = send(heart, fails=True), send(skin, fails=True)
    run()
    Effect.objects.filter(workflow=kept, undo=False).update(state="kept")
    Effect.objects.filter(workflow=charged, undo=False).update(
        state="done", result={"id": "ch_1"}
    )  # as where nothing gives it back
    define([world.step("charge"), pause], **KEY)
    call_command("searchkeys", "fill", stdout=StringIO())
    again = send(), submit(MIND), submit(heart), submit(skin), submit(SOUL)
    run()
    assert standing(*again) == ["failed duplicate_of", "waiting", "waiting", "waiting", "complete"]
    assert {question_of(again[2]).state, question_of(again[3]).state} == {"open"}
    run(queue="b")
    assert standing(queued) == ["failed duplicate_of"], "what has not begun has no part yet"
    go_on(begun)
    assert standing(again[1]) == ["failed duplicate_of"]


# --- Races --------------------------------------------------------------------------------------------


@contextmanager
def somebody_judging(workflow: Workflow) -> Iterator[None]:
    """Another worker, in the midst of finding out whether a workflow of this business key may run."""
    ((hash_, _),) = holders.hashes_in(engine.DEFINITION, workflow.tenant, workflow.payload)
    with another_connection() as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", [int.from_bytes(hash_[:8], signed=True)])
        yield


def test_a_person_does_not_say_so_while_a_worker_finds_out_who_may_run(ada: User) -> None:
    under_way()
    second = send()
    run()
    with somebody_judging(second), pytest.raises(NotAllowed, match="Somebody is changing it at this moment"):
        not_a_duplicate(second.pk, user=ada, reason="Her daughter.")


def test_two_that_are_taken_up_at_once_are_judged_one_after_the_other() -> None:
    first, second = send(pauses=True), send(pauses=True)
    with somebody_judging(first):
        threads = [engine.draining(), engine.draining()]
        until_blocked(2)
        assert not BusinessKeyHash.objects.exists()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(BusinessKeyHash.objects.values_list("role", flat=True)) == [
        "holder",
        "waiting",
    ]
    assert {reread(first).current_step, reread(second).current_step} == {"pause", ""}
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"waiting"}, "none was lost"


def test_a_worker_that_has_lost_the_row_makes_it_no_holder() -> None:
    workflow = send()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text")
        (xid,) = cursor.fetchone()
    with pytest.raises(ClaimLost):
        duplicates.judge(engine.DEFINITION, workflow, OpenAttempt(1, 1, workflow.pk, claim_xid=xid))
    assert not BusinessKeyHash.objects.exists()
