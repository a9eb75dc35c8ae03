"""What is no outage opens no circuit: what failed is retried, as before there were circuits."""

from __future__ import annotations

import socket
import time

import pytest
from django.db.models import QuerySet

from tests.acceptance.faults.harness import System
from workflows.models import Attempt, CircuitEvent, Event, WorkerProcess, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 4
# Seconds: longer than it takes to open a circuit.
A_WHILE = 10.0
# Seconds for an answer: no call is in vain but by the test's own faults, however busy the machine is.
NO_HURRY = {"SERVICES_TIMEOUT": "25"}


def rows(given: list[int]) -> QuerySet[Workflow]:
    return Workflow.objects.filter(pk__in=given)


def wait_until_done(system: System, given: list[int]) -> None:
    system.wait_until(lambda: not rows(given).filter(status="PENDING").exists())
    system.stop()


def keep_entering(system: System, a_second: int) -> list[int]:
    given: list[int] = []
    began = time.monotonic()
    while (passed := time.monotonic() - began) < A_WHILE:
        given += system.notes(int(passed * a_second) - len(given))
        time.sleep(0.1)
    return given


def assert_the_circuit_stayed_closed(given: list[int], retries: int) -> None:
    """And each failure was followed by a retry, and no other."""
    assert not CircuitEvent.objects.exists()
    assert not Event.objects.filter(kind="parked").exists()
    assert set(rows(given).values_list("status", flat=True)) == {"COMPLETE"}
    assert Attempt.objects.filter(workflow__in=given, outcome="retry").count() == retries


def test_one_worker_of_four_whose_network_is_broken(system: System) -> None:
    """From when all of them are there: alone the broken one would rightly be believed."""
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        system.work("NOTE", processes=WORKERS - 1, **NO_HURRY)
        system.work("NOTE", MESSAGES_URL=f"http://127.0.0.1:{closed.getsockname()[1]}")
        system.wait_until(lambda: WorkerProcess.objects.filter(stopped_at=None).count() == WORKERS)
        given = keep_entering(system, 40)
        wait_until_done(system, given)
    broken = Attempt.objects.filter(workflow__in=given, outcome="retry")
    print(f"{len(given)} notes, {broken.count()} failures of the broken worker")  # noqa: T201
    assert broken.count() > 10
    assert len(set(broken.values_list("worker", flat=True))) == 1
    assert_the_circuit_stayed_closed(given, broken.count())
