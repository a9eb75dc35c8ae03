"""PostgreSQL is restarted, or all workers are killed, in each state of a circuit, or of a brake: all goes on."""

from __future__ import annotations

import signal
from functools import partial

import pytest
from django.db import connections

from tests.acceptance.faults.harness import System, fired, send
from tests.acceptance.faults.test_brake import assert_each_is_charged_once_or_has_it_back, statuses
from tests.acceptance.faults.test_outages import PLAIN, WORKERS, assert_all_is_well, wait_until_done
from tests.postgres import Restart
from workflows.features.outages.circuits import SUSPECTS, VOTES, CircuitState, state_of
from workflows.models import Attempt, Service, Workflow
from workflows.models.clock import ClockTimestamp

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

GIVEN = 60


def programs() -> Service:
    return Service.objects.annotate(now=ClockTimestamp()).filter(name="programs").first() or Service()


def state() -> CircuitState:
    return state_of(programs())


def is_releasing() -> bool:
    """In the midst of it. On probation, when the server took the outcome of the trial along, it is suspected."""
    row = programs()
    return row.opened_at is None and row.cohort >= 4


RESTARTED, KILLED = "PostgreSQL is restarted", "all workers are killed"


def lose_all(system: System, restart_postgres: Restart, lost: str) -> None:
    if lost == RESTARTED:
        connections.close_all()
        restart_postgres()
    for child in system.workers[0].children() if lost == KILLED else ():
        send(child, signal.SIGKILL)


@pytest.mark.parametrize("lost", [RESTARTED, KILLED])
def test_in_each_state_of_a_circuit(system: System, restart_postgres: Restart, lost: str) -> None:
    lose = partial(lose_all, system, restart_postgres, lost)
    outage = system.sandbox.fault("programs", None, "status", status=503)["id"]
    given = system.submit(SUSPECTS - 1, PLAIN)  # by so few it is only suspected, for as long as they are alone
    system.work("OUTAGE", processes=WORKERS, SERVICES_TIMEOUT="4")
    children = system.workers[0].children

    system.wait_until(lambda: state() == CircuitState.SUSPECTED)
    lose()
    given += system.submit(GIVEN - len(given), PLAIN)
    rows = Workflow.objects.filter(pk__in=[each.pk for each in given])
    system.wait_until(lambda: state() == CircuitState.OPEN and rows.filter(parked_on="programs").count() == GIVEN)
    processes = children()
    lose()
    assert state() in (CircuitState.OPEN, CircuitState.TRIED), "as before"

    # The next trial is performed, and never answered: it is lost in the midst of it.
    hang = system.sandbox.fault("programs", "enroll", "timeout_after", count=1)["id"]
    assert system.sandbox.lift_fault(outage)["fired"] >= VOTES
    system.wait_until(lambda: fired(system.sandbox)[hang])
    assert state() == CircuitState.TRIED
    lose()
    system.wait_until(is_releasing)
    assert rows.filter(parked_on="programs").count() > 10
    lose()

    wait_until_done(system, given)
    system.wait_until(lambda: not Attempt.objects.filter(closed_at=None).exists())
    assert (children() == processes) == (lost == RESTARTED), "the same processes"
    system.stop()
    assert_all_is_well(system, given)
    assert not rows.exclude(parked_on="").exists()
    assert "engine itself" not in system.output
    assert Attempt.objects.filter(outcome="lost" if lost == RESTARTED else "killed").exists()


def cause() -> Service:
    return Service.objects.exclude(step="").order_by("opened_at").first() or Service()


@pytest.mark.parametrize("lost", [RESTARTED, KILLED])
def test_in_each_state_of_the_brake(system: System, restart_postgres: Restart, lost: str) -> None:
    lose = partial(lose_all, system, restart_postgres, lost)
    refusal = system.sandbox.fault("programs", None, "status", status=404)["id"]
    given = system.submit(2, PLAIN)
    system.work("OUTAGE", processes=WORKERS, SERVICES_TIMEOUT="4")
    system.wait_until(lambda: cause().since is not None)
    lose()
    given += system.submit(GIVEN, PLAIN)
    rows = Workflow.objects.filter(pk__in=[each.pk for each in given])
    system.wait_until(lambda: cause().opened_at is not None and rows.exclude(parked_on="").count() >= GIVEN - 10)
    lose()
    hang = system.sandbox.fault("programs", "enroll", "timeout_after", count=1)["id"]
    system.sandbox.lift_fault(refusal)
    system.wait_until(lambda: fired(system.sandbox)[hang])
    lose()
    system.wait_until(lambda: cause().opened_at is None and cause().cohort >= 4)
    lose()
    wait_until_done(system, given)
    system.wait_until(lambda: not Attempt.objects.filter(closed_at=None).exists())
    system.stop()
    assert statuses(given)["FAILED"] <= 8
    assert_each_is_charged_once_or_has_it_back(system, given)
