"""Nothing stays parked: whatever happens to a circuit, to what is parked on it, or to who releases it, just then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import Error, connection, connections, transaction
from django.utils import timezone

from tests import engine
from tests.engine import define, do_maintenance, elsewhere, submit, worker
from tests.workflows.features.outages.conftest import cohorts_at_once
from tests.workflows.features.outages.services import Downstream, circuit, open_circuit, submit_and_work, trial_is_due
from workflows import operations
from workflows.features.outages import circuits, parking
from workflows.models import Service, Workflow
from workflows.signals import store, waking
from workflows.state import transitions
from workflows.state.transitions import Parking

pytestmark = [*engine.ENGINE, pytest.mark.usefixtures("cohorts_at_once")]

__all__ = ["cohorts_at_once"]

HOUR = timedelta(hours=1)


@pytest.fixture
def programs() -> Downstream:
    programs = Downstream()
    define([programs.step])
    return programs


def close() -> None:
    with circuits.locked("programs", wait=True) as service:
        assert service
        circuits.close(service, "A call was answered.")


def is_released(workflow: Workflow) -> bool:
    return Workflow.objects.due().filter(pk=workflow.pk).exists()


def released_by_maintenance(workflow: Workflow) -> bool:
    for _ in range(3):
        do_maintenance()
        if is_released(workflow):
            return True
    return False


# --- The circuit closes as a row is being parked ----------------------------------------------------------


def park(workflow: Workflow, between: Callable[[], Any] = lambda: None) -> None:
    """As `decide` does: look whether the circuit is open, write the row, commit."""
    with transaction.atomic():
        Workflow.objects.select_for_update(no_key=True).get(pk=workflow.pk)
        if circuits.find_open("programs"):
            between()
            transitions.park(workflow.pk, Parking("programs", HOUR))


@pytest.mark.parametrize("what", ["before the row is written", "after the release has looked"])
def test_a_row_that_is_parked_as_the_circuit_closes_is_released(programs: Downstream, what: str) -> None:
    """Both orders, forced; the release looks before the row is committed, and finds it the next time."""
    open_circuit()
    workflow = submit()

    def closes() -> None:
        elsewhere(close)
        if what == "after the release has looked":
            elsewhere(parking.release_parked)

    park(workflow, closes)
    assert Workflow.objects.get().parked_on == "programs"
    assert released_by_maintenance(workflow)


# --- Who releases it dies ---------------------------------------------------------------------------------


@contextmanager
def ending_after(number: int) -> Iterator[list[int]]:
    """The server ends the session behind so many of its statements, as a SIGKILL of its process does."""
    sent: list[int] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        sent.append(1)
        if len(sent) == number:
            engine.terminate("default")
        return result

    with connection.execute_wrapper(count):
        yield sent


def test_whoever_releases_may_die_at_each_of_its_statements(programs: Downstream) -> None:
    open_circuit()
    submit_and_work(3)
    died = 0
    for number in range(1, 40):
        Workflow.objects.update(invisible_until=timezone.now() + HOUR)
        open_circuit()
        trial_is_due()
        Service.objects.update(released_at=None)
        with ending_after(number) as sent, suppress(Error, psycopg.Error), transaction.atomic():
            parking.release_parked()
        connections.close_all()
        if len(sent) < number:
            break
        died += 1
        assert Workflow.objects.due().count() == 0, "none of it was done"
        parking.release_parked()
        assert Workflow.objects.due().count() == 1
    assert died >= 5


# --- What is released comes to another end ----------------------------------------------------------------


def is_cancelled(workflow: Workflow, ada: User) -> None:
    operations.cancel(workflow.pk, user=ada, reason="Asked for by phone.")


def expires(workflow: Workflow, ada: User) -> None:
    Workflow.objects.filter(pk=workflow.pk).update(expires_at=timezone.now())
    waking.wake_expired()


def is_signalled(workflow: Workflow, ada: User) -> None:
    store.send(source="test", dedupe_key="1", name="news", workflow_id=workflow.pk, payload={})


def is_run_now(workflow: Workflow, ada: User) -> None:
    with suppress(Exception):
        operations.run_now(workflow.pk, user=ada)


def has_another_definition(workflow: Workflow, ada: User) -> None:
    Workflow.objects.filter(pk=workflow.pk).update(workflow_type="of another release")


def is_lost(workflow: Workflow, ada: User) -> None:
    with suppress(Error), transaction.atomic():
        Workflow.objects.select_for_update(no_key=True).get(pk=workflow.pk)
        engine.terminate("default")
        Workflow.objects.count()
    connections.close_all()


HAPPENS = [is_cancelled, expires, is_signalled, is_run_now, has_another_definition, is_lost]


@pytest.mark.parametrize("released", [True, False], ids=["released", "parked"])
@pytest.mark.parametrize("happens", HAPPENS, ids=lambda each: each.__name__)
def test_the_others_follow_whatever_happens_to_the_one_that_is_to_try_it(
    programs: Downstream, happens: Callable[[Workflow, User], None], released: bool
) -> None:
    ada = User.objects.create_superuser("ada")
    open_circuit()
    first, *others = submit_and_work(4)
    trial_is_due()
    if released:
        do_maintenance()
        assert is_released(first)
    happens(first, ada)
    unfinished = Workflow.objects.filter(pk__in=[each.pk for each in others]).exclude(status="COMPLETE")
    parked = Workflow.objects.filter(status="PENDING").exclude(parked_on="")
    for _ in range(30):
        do_maintenance()
        while worker().process_next():
            pass
        if not unfinished.exists() and not parked.exists():
            return
        if circuit().opened_at:
            Service.objects.update(retry_at=timezone.now() - timedelta(seconds=1))
    raise AssertionError(f"not finished: {unfinished.values()}; still parked: {parked.values()}")
