"""PostgreSQL is restarted in each state of a circuit. The workers come back, and the outage goes on where it was."""

from __future__ import annotations

import pytest
from django.db import connections

from tests.acceptance.faults.harness import System, fired
from tests.acceptance.faults.test_outages import PLAIN, WORKERS, assert_all_is_well, wait_until_done
from tests.postgres import Restart
from workflows.models import Attempt, CircuitEvent, Service, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.outages.circuits import SUSPECTS, VOTES, CircuitState, state_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

GIVEN = 60


def programs() -> Service | None:
    return Service.objects.annotate(now=ClockTimestamp()).filter(name="programs").first()


def state() -> CircuitState | None:
    row = programs()
    return state_of(row) if row else None


def is_releasing() -> bool:
    """In the midst of it. On probation, when the server took the outcome of the trial along, it is suspected."""
    row = programs()
    return row is not None and row.opened_at is None and row.cohort >= 4


def test_postgres_restarted_in_each_state_of_a_circuit(system: System, restart_postgres: Restart) -> None:
    def restart() -> None:
        connections.close_all()
        restart_postgres()

    outage = system.sandbox.fault("programs", None, "status", status=503)["id"]
    given = system.submit(SUSPECTS - 1, PLAIN)  # by so few it is only suspected, for as long as they are alone
    system.work("OUTAGE", processes=WORKERS, SERVICES_TIMEOUT="4")
    children = system.workers[0].children

    system.wait_until(lambda: state() == CircuitState.SUSPECTED)
    restart()
    given += system.submit(GIVEN - len(given), PLAIN)
    rows = Workflow.objects.filter(pk__in=[each.pk for each in given])
    system.wait_until(lambda: state() == CircuitState.OPEN and rows.filter(parked_on="programs").count() == GIVEN)
    processes = children()
    restart()
    assert state() in (CircuitState.OPEN, CircuitState.TRIED), "as before"

    # The next trial is performed, and never answered: the server is restarted in the midst of it.
    hang = system.sandbox.fault("programs", "enroll", "timeout_after", count=1)["id"]
    assert system.sandbox.lift_fault(outage)["fired"] >= VOTES
    system.wait_until(lambda: fired(system.sandbox)[hang])
    assert state() == CircuitState.TRIED
    restart()
    system.wait_until(is_releasing)
    assert rows.filter(parked_on="programs").count() > 10
    restart()

    wait_until_done(system, given)
    system.wait_until(lambda: not Attempt.objects.filter(closed_at=None).exists())
    assert children() == processes, "the same processes"
    system.stop()
    assert_all_is_well(system, given)
    assert not rows.exclude(parked_on="").exists()
    assert "engine itself" not in system.output
    lost = Attempt.objects.filter(outcome="lost").count()
    story = list(CircuitEvent.objects.order_by("id").values_list("kind", "reason"))
    print(f"{lost} attempts were lost; the circuit: {story}")  # noqa: T201
    assert lost
