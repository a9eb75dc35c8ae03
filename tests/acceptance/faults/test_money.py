"""Nobody is charged twice, and nobody has paid for what has failed, unless the ledger says so and a person is asked.

The ledger is held against the services' log at every rest, and before anything mends it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection, connections
from pytest_django import Settings

from onboarding.services import http
from tests import engine
from tests.acceptance.faults.audit import of, paid
from tests.acceptance.faults.definitions import LEASE
from tests.acceptance.faults.harness import LOSSES, Requests, end_connection, history_is_complete
from tests.acceptance.faults.money import ALL, Till
from tests.acceptance.outside import attempts
from tests.processes import until
from workflows.models import Attempt, Effect, WorkerProcess, Workflow

pytestmark = pytest.mark.django_db(transaction=True)


def charges(till: Till, workflow: Workflow) -> int:
    return [line["operation"] for line in of(workflow, till.sandbox.effects())].count("charge")


# --- One doubt, and what must not settle it ------------------------------------------------------------

TURNED_AWAY = {
    "refused": "refused",  # 401 or 403: true of the repeat, and says nothing of the first call
    "unavailable": "unavailable",  # 503 or 429
    "unclear": "unclear",  # 500
    "unreachable": "",  # nobody is there
    "does not apply": "",  # the step returns None
}


@pytest.fixture
def here(till: Till, settings: Settings) -> Iterator[None]:
    """Workers of this process reach the services, too."""
    settings.SERVICES, settings.SERVICES_TIMEOUT = till.sandbox.services(), 1
    yield
    http.close()
    connections["attempt_log"].close()


@pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])
@pytest.mark.parametrize("how", TURNED_AWAY)
def test_a_repeat_that_is_turned_away_settles_no_doubt(till: Till, here: None, how: str) -> None:
    """A charge is made, its answer is lost, and its repeat, under the same key, turned away.

    That settles nothing, neither at once nor when all has come to its end, one way or the other.
    """
    end = {"waived_from": 2} if how == "does not apply" else {}
    workflow = till.pay("step_by_step", calls=["lost", *filter(None, [TURNED_AWAY[how]])], **end)
    till.drain()
    assert (charges(till, workflow), Effect.objects.get(step="collect").state) == (1, "unknown")
    if how == "unreachable":
        till.sandbox.kill()
    till.drain()
    if how == "unreachable":
        till.sandbox.start()
    assert len(attempts(workflow)) > 1
    till.assert_the_books_are_right()
    till.forget_the_keys()  # a day passes, and people answer
    till.wait_until(lambda: till.drain() or till.at_rest())
    till.assert_the_books_are_right()
    row = Workflow.objects.get(pk=workflow.pk)
    assert paid(of(row, till.sandbox.effects())) == {"COMPLETE": 1, "FAILED": 0}[row.status]
    history_is_complete(row)


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
SERVICES_LOST = 4
WORKERS_LOST = 2 * len(LOSSES)
MUST_BE_MET = {
    *("complete", "failed and undone", "cancelled", "cancelled in doubt", "asked when the key was over", "looked up"),
    *("refused", "refused in doubt", "gave up in doubt", "failed after the call"),
    *("failed at ship", "failed at close_the_books"),
    *("tried again", "undone by hand", "left as it is", "found undone", "services lost", "retried", *LOSSES),
}


def test_whatever_fails_is_cancelled_or_expires_is_paid_once_or_given_back(slow_disk: None, till: Till) -> None:
    for _ in range(2):
        till.work(processes=2, WORKER_LEASE_SECONDS=str(LEASE))

    def work_on(at_rest: Callable[[], bool]) -> bool:
        till.cancel_as_planned()
        till.try_what_cools_off()
        till.let_fail_what_is_to_fail()
        till.audit.look_around(till.given, till.random)
        return at_rest()

    for number in range(2 * ALL):
        if number >= ALL and number % AT_A_TIME == ALL % AT_A_TIME:  # by then all, but for bad luck with the moments
            till.wait_until(lambda: work_on(till.at_rest))
            if not MUST_BE_MET - {"retried"} - {what for what, count in till.what_was_met().items() if count}:
                break
        till.enter_plan(next(till.plans))
        if number % (ALL // SERVICES_LOST) == ALL // SERVICES_LOST // 2:
            till.lose_the_services()
        if till.met["a worker lost"] < WORKERS_LOST * number / ALL:
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
