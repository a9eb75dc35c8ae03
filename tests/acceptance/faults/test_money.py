"""Nobody is charged twice, and nobody has paid for what has failed, unless the ledger says so and a person is asked.

The ledger is held against the services' log at every rest, and before anything mends it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from tests import engine
from tests.acceptance.faults.audit import of, paid
from tests.acceptance.faults.harness import Requests, end_connection, history_is_complete
from tests.acceptance.faults.money import ALL, Till
from tests.acceptance.outside import attempts
from tests.processes import until
from workflows.models import Attempt, Effect, WorkerProcess, Workflow

pytestmark = pytest.mark.django_db(transaction=True)


def charges(till: Till, workflow: Workflow) -> int:
    return [line["operation"] for line in of(workflow, till.sandbox.effects())].count("charge")


def state_of(workflow: Workflow, step: str = "collect", *, undo: bool = False) -> str:
    return Effect.objects.get(workflow=workflow, step=step, undo=undo, generation=1).state


# --- One doubt, and what must not settle it ------------------------------------------------------------

TURNED_AWAY = {
    "refused": "refused",  # 401 or 403: true of the repeat, and says nothing of the first call
    "unavailable": "unavailable",  # 503 or 429
    "unclear": "unclear",  # 500
    "unreachable": "",  # nobody is there
    "does not apply": "",  # the step returns None
}


def turn_away(till: Till, name: str, how: str, **end: object) -> Workflow:
    """A charge that is made, and whose answer is lost; and its repeat, under the same key, that is turned away."""
    if how == "does not apply":
        end["waived_from"] = 2
    workflow = till.pay(name.lower(), calls=["lost", *filter(None, [TURNED_AWAY[how]])], **end)
    till.drain(name)
    assert (charges(till, workflow), state_of(workflow)) == (1, "unknown")
    if how == "unreachable":
        till.sandbox.kill()
    till.drain(name)
    if how == "unreachable":
        till.sandbox.start()
    assert len(attempts(workflow)) > 1
    return workflow


def until_at_rest(till: Till, name: str) -> None:
    """Let a day pass, and people answer, until it is COMPLETE or FAILED."""
    till.forget_the_keys()
    till.work(name)
    till.wait_until(lambda: till.hurry() or till.at_rest())
    till.stop()


@pytest.mark.parametrize("how", TURNED_AWAY)
def test_a_repeat_that_is_turned_away_settles_no_doubt(till: Till, how: str) -> None:
    """Neither at once nor when all has come to its end, one way or the other."""
    workflow = turn_away(till, "STEP_BY_STEP", how)
    till.assert_the_books_are_right()
    until_at_rest(till, "STEP_BY_STEP")
    till.assert_the_books_are_right()
    row = Workflow.objects.get(pk=workflow.pk)
    assert paid(of(row, till.sandbox.effects())) == {"COMPLETE": 1, "FAILED": 0}[row.status]
    history_is_complete(row)


def test_what_is_in_doubt_though_its_repeat_was_turned_away_is_given_back_when_it_is_cancelled(till: Till) -> None:
    workflow = turn_away(till, "STEP_BY_STEP", "unavailable")
    till.cancel(workflow.pk)
    until_at_rest(till, "STEP_BY_STEP")
    assert Workflow.objects.get(pk=workflow.pk).status == "FAILED"
    assert paid(of(workflow, till.sandbox.effects())) == 0
    till.assert_the_books_are_right()


def test_what_is_in_doubt_though_its_repeat_was_turned_away_is_not_called_again_when_its_key_is_forgotten(
    till: Till,
) -> None:
    workflow = turn_away(till, "FINAL_STEP_BY_STEP", "unavailable", patience=2)
    assert Workflow.objects.get(pk=workflow.pk).status == "FAILED"
    till.retry_the_failed()
    until_at_rest(till, "FINAL_STEP_BY_STEP")
    assert charges(till, workflow) == 1
    till.assert_the_books_are_right()
    assert state_of(workflow) == "done"
    assert Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"


def test_an_undo_in_doubt_whose_repeat_is_turned_away_is_in_doubt(till: Till) -> None:
    """A person who is asked would else read that nothing was given back, and might let it stand."""
    workflow = till.pay("step_by_step", refunds=["lost", "unavailable"], fails_at="ship")
    till.drain("STEP_BY_STEP")
    assert (state_of(workflow), state_of(workflow, undo=True)) == ("done", "unknown")
    till.drain("STEP_BY_STEP")
    till.assert_the_books_are_right()
    until_at_rest(till, "STEP_BY_STEP")
    assert state_of(workflow) == "undone"
    till.assert_the_books_are_right()


def test_a_step_that_does_not_apply_and_whose_worker_died_is_a_question_and_fails_nobody(
    till: Till, tmp_path: Path
) -> None:
    """Nobody was charged, and nobody can know but a person: to repeat it tells nothing, however often."""
    workflow = till.pay("step_by_step", waived_from=1)
    (reached := tmp_path / "reached").mkdir()
    till.work("STEP_BY_STEP", ONRAMP_FAILPOINT="after_intent:collect", ONRAMP_FAILPOINT_ONCE=str(reached))
    till.wait_until(till.at_rest, 60)
    till.stop()
    assert attempts(workflow)[0] == "killed"
    assert (Workflow.objects.get(pk=workflow.pk).status, charges(till, workflow)) == ("COMPLETE", 0)
    till.assert_the_books_are_right()


# Seconds: the other worker is idle, and comes by long before it is over.
CALL_TAKES = 3.5


def test_a_late_result_is_not_overwritten_by_the_call_that_another_worker_is_about_to_repeat(till: Till) -> None:
    """The other one has read the ledger before the result came, and starts its call after."""
    till.sandbox.fault("payments", "charge", "slow", delay_s=CALL_TAKES, count=1)
    requests = Requests(till.sandbox, "payments", "charge")  # but the one that is slow
    till.work("IN_TURNS", processes=2, SERVICES_TIMEOUT="10")
    until(lambda: WorkerProcess.objects.filter(stopped_at=None).count() == 2, what=till.what_is_left)
    workflow = till.pay("in_turns")
    until(lambda: Effect.objects.filter(workflow=workflow, step="collect", state="intent").exists())
    assert end_connection("claim", Attempt.objects.get(workflow=workflow).worker)
    till.wait_until_at_rest()
    till.wait_until(lambda: attempts(workflow)[0] == "lost")
    till.stop()
    one, other = Attempt.objects.filter(workflow=workflow).order_by("number").values_list("worker", flat=True)[:2]
    assert one != other
    assert requests.count() == 0, till.output
    assert charges(till, workflow) == 1
    till.assert_the_books_are_right()


def test_nobody_is_asked_about_a_call_whose_intent_was_long_on_its_way_to_the_disk_before_it_can_have_arrived(
    till: Till, stalled_intent: None
) -> None:
    """The INTENT is as old as `settle` when others see it, and the call is about to be made."""
    till.sandbox.fault("payments", "charge", "slow", delay_s=1.5, count=1)
    till.work("BY_PERSON", processes=2, SERVICES_TIMEOUT="4")
    until(lambda: WorkerProcess.objects.filter(stopped_at=None).count() == 2, what=till.what_is_left)
    workflow = till.pay("by_person")
    until(a_attempt_log_stalls)
    assert end_connection("claim", engine.last_attempt(workflow).worker)
    till.wait_until_at_rest()
    till.wait_until(lambda: attempts(workflow)[0] == "lost")
    till.stop()
    assert charges(till, workflow) == 1
    till.assert_the_books_are_right()


def a_attempt_log_stalls() -> bool:
    with connection.cursor() as cursor:
        asleep = (
            "wait_event = 'PgSleep' AND application_name LIKE 'onramp attempt_log%' AND datname = current_database()"
        )
        cursor.execute(f"SELECT FROM pg_stat_activity WHERE {asleep}")
        return bool(cursor.fetchall())


# --- All of them at once -------------------------------------------------------------------------------

AT_A_TIME = 16
LOSSES = 4  # of the services, and of a worker
MUST_BE_MET = {
    *("complete", "failed and undone", "cancelled", "cancelled in doubt", "asked when the key was over", "looked up"),
    *("refused", "refused in doubt", "gave up in doubt", "failed after the call"),
    *("failed at ship", "failed at close_the_books"),
    *("tried again", "undone by hand", "left as it is", "found undone", "services lost", "a worker lost", "retried"),
}


def test_whatever_fails_is_cancelled_or_expires_is_paid_once_or_given_back(till: Till) -> None:
    for _ in range(2):
        till.work(processes=2)

    def work_on(at_rest: Callable[[], bool]) -> bool:
        till.cancel_as_planned()
        till.audit.look_around(till.given, till.random)
        return at_rest()

    for number in range(2 * ALL):
        if number >= ALL and number % AT_A_TIME == ALL % AT_A_TIME:  # by then all, but for bad luck with the moments
            till.wait_until(lambda: work_on(till.at_rest))
            if not MUST_BE_MET - {"retried"} - {what for what, count in till.what_was_met().items() if count}:
                break
        till.enter_plan(next(till.plans))
        if number % (ALL // LOSSES) == ALL // LOSSES // 2:
            till.lose_the_services()
            till.met["services lost"] += 1
        if till.met["a worker lost"] < LOSSES * number / ALL:
            till.lose_a_worker()
        pending = Workflow.objects.filter(pk__in=till.given, status="PENDING")
        till.wait_until(lambda: work_on(lambda: till.at_rest() or pending.count() < AT_A_TIME))  # noqa: B023
    till.wait_until(lambda: work_on(till.at_rest))
    till.audit.look(till.given)  # before a retry mends anything
    met = till.what_was_met()
    till.sandbox.clear_faults()
    till.retry_the_failed()
    met["retried"] = till.met["retried"]
    till.wait_until(lambda: work_on(till.at_rest))
    till.stop()
    print(f"seed {till.seed}: {dict(met)}; looks: {dict(till.audit.seen)}")  # noqa: T201 (the figures, for -s)
    till.assert_the_books_are_right()
    for row in Workflow.objects.filter(pk__in=till.given):
        history_is_complete(row)
    assert not (missed := MUST_BE_MET - {what for what, count in met.items() if count}), missed
