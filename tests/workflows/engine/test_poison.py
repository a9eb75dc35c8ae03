"""What becomes of a workflow whose workers die on it: judged by how its attempts ended, before any step runs."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from tests import engine
from tests.engine import define, due_again, due_in, kinds, last_attempt, make_due, submit, work
from tests.postgres import without_triggers
from tests.workflows.operations import correcting
from tests.workflows.refusing import lose
from workflows import operations
from workflows.definition import Retry, Step
from workflows.features.business_key.operations import not_a_duplicate
from workflows.models import Attempt, Effect, Event, ManualTask, Wait, Workflow

pytestmark = engine.ENGINE

RAN: list[int] = []
ANOTHER = 987_654_321  # the id of some other workflow


@pytest.fixture(autouse=True)
def forget() -> None:
    RAN.clear()


def charge(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    RAN.append(workflow.pk)
    return {}


def after(*ended: str, workflow: Workflow | None = None, how: str = "SIGSEGV") -> Workflow:
    """A workflow whose attempts have ended so, the last one last; other workflows were decided in between."""
    define([charge], retry=Retry(base_delay=60, max_attempts=3, jitter_factor=0))
    workflow = workflow or submit()
    begin = Attempt.objects.filter(workflow=workflow).count() + 1
    for number, outcome in enumerate(ended, begin):
        died = {"died_in": "charge", "died_how": how} if outcome in ("crashed", "killed", "interrupted") else {}
        closed = None if outcome == "" else timezone.now()
        if outcome == "lost":
            another_is_decided()
            died = {"died_in": "charge"}
        Attempt.objects.create(
            workflow=workflow, number=number, worker="gone:1", outcome=outcome, closed_at=closed, **died
        )
    due_again(workflow)
    return workflow


def another_is_decided() -> None:
    others = Attempt.objects.filter(workflow=ANOTHER).count()
    Attempt.objects.create(
        workflow_id=ANOTHER, number=others + 1, worker="here:1", outcome="complete", closed_at=timezone.now()
    )


def test_anything_less_is_tried_again_at_once() -> None:
    for ended in [
        ["crashed", "waiting", "crashed", "crashed"],
        ["crashed", "killed", "crashed", "crashed"],
        ["lost"] * 9 + ["killed"],
        ["lost"] * 12 + ["retry"] + ["lost"] * 9,
        ["interrupted"] * 20,
        ["put_back"] * 20,
        ["vanished"],
        [""],
    ]:
        assert work(after(*ended, how="grace")).status == "COMPLETE", ended


@pytest.mark.parametrize("between", ["lost", "interrupted", "put_back"])
def test_what_says_nothing_of_the_payload_does_not_absolve_it_either(between: str) -> None:
    """A deploy between two crashes, or a crash of the database."""
    workflow = after("crashed", between, "crashed", between, between, "crashed", how="grace")
    assert work(workflow).last_error_code == "poison"


def test_a_step_that_has_left_the_list_is_named_and_what_is_known_of_the_run_stays() -> None:
    workflow = after("crashed", "crashed", "crashed")
    Attempt.objects.update(died_in="gone_since")
    Workflow.objects.filter(pk=workflow.pk).update(context={"number": 7})
    workflow = work(workflow)
    assert (workflow.current_step, workflow.context) == ("gone_since", {"number": 7})


def test_a_poisoned_workflow_that_is_retried_has_three_more_lives() -> None:
    workflow = work(after("crashed", "crashed", "crashed"))
    operations.retry(workflow.pk, user=User.objects.create_superuser("ada"))
    after("crashed", "crashed", workflow=workflow)
    assert work(workflow).status == "COMPLETE"


@pytest.mark.parametrize("ended", [["crashed"] * 3, ["killed"] * 10])
def test_one_that_is_cancelled_and_retried_has_all_its_lives_too(ended: list[str]) -> None:
    workflow, ada = after(*ended), User.objects.create_superuser("ada")
    for number, outcome in enumerate(ended, 1):
        Event.objects.create(workflow=workflow, kind=outcome, attempt=number)
    operations.cancel(workflow.pk, user=ada, reason="Asked for by phone.")
    operations.retry(workflow.pk, user=ada)
    workflow = work(workflow)
    assert (workflow.status, workflow.cancelled_at) == ("COMPLETE", None)


def retry(row: Workflow) -> None:
    operations.retry(row.pk, user=User.objects.create_superuser("ada"))


def correct(row: Workflow) -> None:
    define([charge], correctable=correcting.EMAIL)
    correcting.correct(row)


def tell_apart(row: Workflow) -> None:
    Workflow.objects.filter(pk=row.pk).update(last_error_code="duplicate_of")
    not_a_duplicate(row.pk, user=User.objects.create_superuser("ada"), reason="Her daughter.")


@pytest.mark.parametrize("reopen", [retry, correct, tell_apart])
def test_what_its_workers_died_of_before_it_started_again_counts_no_more(reopen: Callable[[Workflow], None]) -> None:
    workflow = after("crashed", "crashed", workflow=submit({"patient": {"email": correcting.TYPO}}))
    for number in (1, 2):
        Event.objects.create(workflow=workflow, kind="crashed", attempt=number)
    Workflow.objects.filter(pk=workflow.pk).update(status="FAILED", completed_at=timezone.now())
    reopen(Workflow.objects.get(pk=workflow.pk))
    assert work(after("crashed", workflow=workflow)).status == "COMPLETE"


@pytest.mark.parametrize("kind", ["compensating", "retried"])
def test_a_clock_that_was_set_back_since_a_person_retried_it_hides_no_death(kind: str) -> None:
    workflow = submit()
    Event.objects.create(workflow=workflow, kind=kind, at=timezone.now() + timedelta(minutes=10))
    after("crashed", "crashed", "crashed", workflow=workflow)
    assert work(workflow).last_error_code == "poison"


def test_that_the_history_tells_of_a_death_hides_none() -> None:
    workflow = submit()
    for number in (1, 2, 3):
        Event.objects.create(workflow=workflow, kind="crashed", attempt=number)
    after("crashed", "crashed", "crashed", workflow=workflow)
    assert work(workflow).last_error_code == "poison"


# --- Killed and vanished ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deaths", "last", "seconds"), [(2, "killed", 2), (2, "vanished", 2), (3, "", 4), (9, "killed", 256)]
)
def test_from_the_second_death_in_a_row_on_it_backs_off(deaths: int, last: str, seconds: int) -> None:
    workflow = after(*["killed"] * (deaths - 1), last)
    Workflow.objects.update(retry_count=1)
    workflow = work(workflow)
    assert RAN == []
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)
    delay = (workflow.invisible_until - timezone.now()).total_seconds()
    assert seconds * 0.8 - 1 < delay < seconds * 1.2
    assert last_attempt(workflow).outcome == "put_back"
    assert Event.objects.latest("id").detail["reason"].startswith(f"Its worker died {deaths} times in a row")
    make_due(workflow)
    assert work(workflow).status == "COMPLETE", "after it"


def test_what_was_found_open_and_turns_out_to_have_crashed_is_known_after_the_back_off() -> None:
    workflow = work(after("crashed", "crashed", "vanished"))
    assert (workflow.status, RAN) == ("PENDING", [])
    Attempt.objects.filter(workflow=workflow, outcome="vanished").update(outcome="crashed")
    make_due(workflow)
    assert work(workflow).last_error_code == "poison"


def test_ten_deaths_in_a_row_ask_a_person() -> None:
    workflow = work(after(*["killed", "vanished"] * 5))
    assert RAN == []
    task = ManualTask.objects.get()
    assert (task.task_type, task.question) == ("keeps_dying", "Its workers keep dying. May it be tried again?")
    assert due_in(task) == "1 h"
    assert (workflow.status, workflow.waiting_for, workflow.wake_on) == ("PENDING", task.question, [task.signal_name])
    assert workflow.invisible_until == task.expires_at
    assert (kinds(workflow), last_attempt(workflow).outcome) == (["waiting"], "held")
    for _ in range(3):  # somebody presses "run now": the question stays the same one
        make_due(workflow)
        assert work(workflow).status == "PENDING"
    assert (ManualTask.objects.count(), kinds(workflow)) == (1, ["waiting"])


def test_a_yes_lets_it_run_and_the_count_starts_anew() -> None:
    boss = User.objects.create_superuser("ada")
    workflow = work(after(*["killed"] * 10))
    operations.approve(ManualTask.objects.get().pk, user=boss)
    assert Workflow.objects.get(pk=workflow.pk).invisible_until <= timezone.now(), "woken"
    after("killed", workflow=workflow)
    assert work(workflow).status == "COMPLETE", "the first death since then"

    workflow = work(after(*["killed"] * 10))
    operations.approve(ManualTask.objects.get(state="open").pk, user=boss)
    after(*["killed"] * 9, workflow=workflow)
    assert work(workflow).waiting_for == "", "nobody is asked: it backs off"
    assert last_attempt(workflow).outcome == "put_back"
    after("killed", workflow=workflow)
    work(workflow)
    assert ManualTask.objects.filter(workflow=workflow, state="open").count() == 1, "the twentieth"


@pytest.mark.parametrize("ended", ["killed", "lost"])
def test_a_no_fails_it_with_the_reason(ended: str) -> None:
    workflow = work(after(*[ended] * 10))
    operations.reject(ManualTask.objects.get().pk, user=User.objects.create_superuser("ada"), reason="It eats hosts.")
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code, RAN) == ("FAILED", "approval_rejected", [])
    assert "Rejected by ada: It eats hosts." in workflow.last_error_message


def test_no_answer_in_time_fails_it() -> None:
    workflow = work(after(*["killed"] * 10))
    Wait.objects.update(deadline=timezone.now() - timedelta(hours=1))
    make_due(workflow)
    assert work(workflow).last_error_code == "approval_expired"


# --- Lost -----------------------------------------------------------------------------------------------------------


def test_ten_losses_without_a_decision_ask_a_person() -> None:
    workflow = after(*["lost", "put_back", "interrupted"] * 10, how="grace")
    Attempt.objects.filter(outcome="lost").update(died_in="charge", died_how="NotNullViolation 23502")
    workflow = work(workflow)
    assert RAN == []
    task = ManualTask.objects.get()
    assert (task.task_type, due_in(task)) == ("keeps_being_lost", "1 h")
    assert task.question == "Its workers keep losing the database. May it be tried again?"
    told = [["Attempts lost in a row", "10"], ["The last one", "in charge by NotNullViolation 23502"]]
    assert task.facts == told
    assert (workflow.status, workflow.retry_count, workflow.wake_on) == ("PENDING", 0, [task.signal_name])
    assert (kinds(workflow), last_attempt(workflow).outcome) == (["waiting"], "held")
    make_due(workflow)
    assert work(workflow).status == "PENDING"
    assert ManualTask.objects.count() == 1, "the same question"


def test_after_a_yes_to_what_is_lost_it_is_tried_ten_times_more() -> None:
    workflow = work(after(*["lost"] * 10))
    operations.approve(ManualTask.objects.get().pk, user=User.objects.create_superuser("ada"))
    after(*["lost"] * 9, workflow=workflow)
    RAN.clear()
    workflow = work(workflow)
    assert (workflow.status, RAN) == ("COMPLETE", [workflow.pk])

    workflow = work(after(*["lost"] * 20))
    assert ManualTask.objects.filter(workflow=workflow, state="open").count() == 1, "the twentieth"


def test_nobodys_silence_fails_what_is_lost_it_is_tried_once_more_and_then_asked_about_again() -> None:
    workflow = after(*["lost"] * 10)
    for asked in (1, 2, 3):
        workflow = work(workflow)
        tasks = ManualTask.objects.filter(workflow=workflow)
        assert (RAN, tasks.count(), tasks.filter(state="open").count()) == ([], asked, 1)
        engine.expire(workflow)
        lose_it_again(workflow)


def lose_it_again(workflow: Workflow) -> None:
    """Run it, and lose the claim in its step."""

    def close(*, workflow: Workflow, context: Any) -> None:
        connection.close()

    define([Step(close, name="charge")])
    lose(workflow)
    assert last_attempt(workflow).outcome == "lost", "it was tried"
    make_due(workflow)


def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
    RAN.append(workflow.pk)


def charged(workflow: Workflow) -> Workflow:
    """It has made a call, which has an undo."""
    define([Step(charge, once=True, undo=undo)])
    effect = {"step": "charge", "state": "done", "result": {}, "has_undo": True, "attempt": 1}
    Effect.objects.create(workflow=workflow, idempotency_key=f"{workflow.key}:charge", **effect)
    return workflow


def test_a_compensation_is_not_judged_by_what_its_workers_died_of_before_the_cancellation() -> None:
    workflow = charged(after("crashed", "crashed"))
    for number in (1, 2):
        Event.objects.create(workflow=workflow, kind="crashed", attempt=number)
    operations.cancel(workflow.pk, user=User.objects.create_superuser("ada"), reason="By phone.")
    after("crashed", workflow=workflow)
    define([Step(charge, once=True, undo=undo)])
    assert (work(workflow).status, len(RAN)) == ("FAILED", 1)


def test_a_compensation_that_is_lost_ten_times_asks_a_person_and_counts_no_failure_before() -> None:
    def lost(times: int) -> Workflow:
        return work(charged(after(*["lost"] * times, workflow=submit(compensating=True))))

    assert (lost(9).status, len(RAN)) == ("FAILED", 1), "undone"
    workflow = lost(10)
    assert (workflow.status, len(RAN)) == ("PENDING", 1)
    task = ManualTask.objects.get()
    assert task.task_type == "undo_in_doubt"
    assert dict(task.facts)["The last error"].startswith("keeps_being_lost: Its claim was lost 10 times in a row")


# --- Overdue ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", [[], ["lost"], ["put_back"]])
def test_an_overdue_step_is_a_failure_of_that_step(then: list[str]) -> None:
    workflow = work(after("interrupted", *then, how="overdue"))
    assert RAN == []
    assert (workflow.status, workflow.retry_count, workflow.last_error_code) == ("PENDING", 1, "overdue")
    assert workflow.invisible_until - timezone.now() > timedelta(seconds=50), "as its policy says"
    assert (kinds(workflow), last_attempt(workflow).outcome) == (["retry_scheduled"], "retry")
    make_due(workflow)
    assert work(workflow).status == "COMPLETE", "counted once"


def test_the_policy_is_that_of_the_step() -> None:
    workflow = after("interrupted", how="overdue")
    define([Step(charge, retry=Retry(max_attempts=1))])
    assert work(workflow).status == "FAILED"


# --- What it costs ------------------------------------------------------------------------------------------------


def test_the_past_is_read_by_its_index_and_no_further_than_the_last_decision() -> None:
    workflow = submit()
    with connection.cursor() as cursor:
        with without_triggers():
            cursor.execute("TRUNCATE workflows_attempt, workflows_event")
        cursor.execute(
            """INSERT INTO workflows_attempt (workflow_id, number, worker, outcome, closed_at)
               SELECT w, n, 'gone:1', CASE WHEN n < 300 THEN 'waiting' ELSE 'put_back' END, now()
                 FROM generate_series(1, 300) n, generate_series(%s, %s + 50) w""",
            [workflow.pk, workflow.pk],
        )
        cursor.execute("ANALYZE workflows_attempt")
    with engine.another_connection() as other:
        from workflows.state.attempt_log import _PAST

        parameters = {"workflow_id": workflow.pk, "due_since": workflow.invisible_until}
        rows = other.execute(f"EXPLAIN (ANALYZE, BUFFERS) {_PAST}", parameters)
        plan = "\n".join(line for (line,) in rows)
    assert "Seq Scan on workflows_attempt" not in plan  # an empty table of events may be read as it is
    assert plan.count("attempt_unique_number") == 2
    buffers = int(plan.split("Buffers: shared hit=")[1].split()[0])
    assert buffers <= 12, plan
