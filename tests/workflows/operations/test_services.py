"""What people may do with a service: hold it, have it tried now; what is refused, and in which words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from tests.engine import another_connection
from tests.workflows import rows
from tests.workflows.features.outages.services import circuit, open_circuit, story, trial_is_due
from workflows.errors import NotAllowed
from workflows.features.outages import operations as services
from workflows.models import CircuitEvent, Service
from workflows.operations import guards

HOUR = timedelta(hours=1)


def hold(name: str = "programs", **arguments: Any) -> None:
    services.hold(name, **{"until": timezone.now() + HOUR, "reason": "They migrate.", **arguments})


def try_now(name: str = "programs", **arguments: Any) -> None:
    services.try_now(name, **{"reason": "It is back.", **arguments})


def test_a_hold_opens_a_closed_circuit_until_its_time_and_says_who_and_why(boss: User) -> None:
    Service.objects.create(name="programs")
    until = timezone.now() + HOUR
    hold(user=boss, until=until, reason="  They migrate. ")
    service = circuit()
    assert service.opened_at
    assert (service.retry_at, service.held_by, service.held_reason) == (until, "boss", "They migrate.")
    event = CircuitEvent.objects.get()
    assert (event.service, event.kind, event.actor) == ("programs", "held", "boss")
    assert event.reason == f"Until {until:%Y-%m-%d %H:%M} UTC. They migrate."


def test_a_hold_takes_the_place_of_the_one_before(boss: User) -> None:
    open_circuit()
    hold(user=boss, until=timezone.now() + 5 * HOUR)
    later = timezone.now() + HOUR
    hold(user=User.objects.create_superuser("ada"), until=later)
    assert (circuit().retry_at, circuit().held_by) == (later, "ada")
    assert story() == ["held", "held"]


def test_a_service_on_which_workflows_are_parked_is_held_though_it_has_no_row(boss: User) -> None:
    rows.parked(parked_on="programs")
    hold(user=boss)
    assert circuit().held_by == "boss"


@pytest.mark.parametrize("make", [lambda: None, lambda: rows.complete(parked_on="programs")])
def test_no_service_is_made_by_a_name_that_nothing_knows(boss: User, make: Callable[[], Any]) -> None:
    make()
    for operation in (hold, try_now):
        for name in ("programs", ""):
            with pytest.raises(NotAllowed, match=f"^No workflow has met a service {name} unavailable, or waits for"):
                operation(name, user=boss)
    assert not Service.objects.exists()


def test_a_hold_has_an_end_that_is_to_come_and_not_far_away(boss: User) -> None:
    before = Service.objects.values().get(pk=open_circuit().pk)
    for until, sentence in [
        (timedelta(0), "That time is over: a service is held until a time to come."),
        (timedelta(days=7, seconds=9), "A service is held for 7 days at the most. It can be held again."),
    ]:
        with pytest.raises(NotAllowed, match=sentence):
            hold(user=boss, until=timezone.now() + until)
    assert Service.objects.values().get() == before
    hold(user=boss, until=timezone.now() + timedelta(days=7))
    assert story() == ["held"]


@pytest.mark.parametrize("until", [None, 5 * HOUR])
def test_to_try_it_now_ends_the_cool_off_and_the_hold(boss: User, until: timedelta | None) -> None:
    open_circuit()
    if until:
        hold(user=boss, until=timezone.now() + until)
    try_now(user=boss, reason=" It is back. ")
    service = circuit()
    assert service.retry_at
    assert service.opened_at
    assert service.retry_at <= timezone.now()
    assert (service.held_by, service.held_reason, service.trial_until) == ("", "", None)
    event = CircuitEvent.objects.latest("id")
    assert (event.kind, event.actor, event.reason) == ("tried", "boss", "It is back.")


def test_what_is_not_open_is_not_tried(boss: User) -> None:
    Service.objects.create(name="programs", since=timezone.now(), failed=4)
    with pytest.raises(NotAllowed, match=r"^Only a service that is down or held can be tried; workflows call"):
        try_now(user=boss)
    assert story() == []


def test_what_is_to_be_tried_already_is_not_told_so_again(boss: User) -> None:
    open_circuit()
    trial_is_due()
    before = circuit().retry_at
    with pytest.raises(NotAllowed, match="A trial is due already"):
        try_now(user=boss)
    assert circuit().retry_at == before, "or a workflow that was released for it would be released in vain"
    assert story() == []


def test_each_needs_a_reason(boss: User) -> None:
    open_circuit()
    for operation in (hold, try_now):
        with pytest.raises(NotAllowed, match=r"^Say why: a (hold|trial) needs a reason"):
            operation(user=boss, reason="  \n")
    assert story() == []


# --- While a worker has the row -----------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("operation", [hold, try_now])
def test_a_row_that_another_session_keeps_is_waited_for_and_not_for_long(
    boss: User, operation: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guards, "LOCK_TIMEOUT", "200ms")
    open_circuit()
    with another_connection() as other, other.cursor() as cursor:
        cursor.execute("BEGIN; SELECT FROM workflows_service FOR NO KEY UPDATE")
        with at_most("5s"), pytest.raises(NotAllowed, match="A worker is writing about it right now; try again in a"):
            operation(user=boss)
        cursor.execute("ROLLBACK")
        operation(user=boss)
    assert len(story()) == 1


@contextmanager
def at_most(time: str) -> Iterator[None]:
    """A statement that takes longer is an error, and does not hang the test."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = '{time}'")
        yield
        cursor.execute("RESET statement_timeout")
