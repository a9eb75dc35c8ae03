"""What could not be sent for days is given up; what was sent is deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.engine import do_chore, elsewhere
from tests.workflows.features.outbox.test_relay import event, later, now, seconds_left
from workflows.features.outbox import chores
from workflows.features.outbox.relay import LEASE
from workflows.models import CircuitEvent, OutboxEvent, Service

pytestmark = pytest.mark.django_db(transaction=True)

DAY, HOUR = 86_400, 3_600


def do(chore: str, after: int = 0) -> Any:
    return elsewhere(lambda: do_chore(chore, after))


def test_what_could_not_be_sent_for_days_is_given_up_also_of_a_destination_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chores, "GIVE_UP_AFTER", timedelta(days=2))
    old = [event(destination=name, since=later(-2 * DAY - 60)) for name in ("crm", "gone", "gone")]
    tried_later = event(since=later(-3 * DAY), due_at=later(3 * LEASE))
    young = event(destination="gone", since=later(-2 * DAY + 60))
    assert do("give up events").changed == 4
    assert {now(each).state for each in [*old, tried_later]} == {"given_up"}
    assert now(young).state == ""
    assert do("give up events").changed == 0


def test_what_a_relay_may_be_sending_just_now_is_not_given_up() -> None:
    row = event(since=later(-30 * DAY), due_at=later(LEASE - 1))
    assert do("give up events").changed == 0
    assert now(row).state == ""


def test_what_is_put_off_for_longer_than_any_relay_does_is_due() -> None:
    """The clock was set back."""
    rows = [event(due_at=later(seconds)) for seconds in (DAY, HOUR)]
    do("give up events")
    assert [seconds_left(each) <= 0 for each in rows] == [True, False]


@pytest.mark.usefixtures("destinations")
@pytest.mark.parametrize(
    ("name", "retry_at", "left", "closes"),
    [
        ("crm", later(-1), "discarded", True),
        ("crm", later(-1), "given_up", True),
        ("crm", later(-1), "", False),
        ("crm", later(HOUR), "discarded", False),  # held, say
        ("crm", None, "discarded", False),  # it answered 410
        ("gone", None, "discarded", True),
    ],
)
def test_a_destination_with_nothing_left_to_try_it_with_is_not_down_for_ever(
    name: str, retry_at: Any, left: str, closes: bool
) -> None:
    event(destination=name, state=left)
    event(destination="lake")
    Service.objects.create(name=f"outbox {name}", opened_at=later(-HOUR), retry_at=retry_at)
    for _ in range(2):
        do("give up events")
    assert (Service.objects.get().opened_at is None) == closes
    assert CircuitEvent.objects.count() == closes


def test_what_was_sent_or_discarded_is_deleted_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "KEPT", timedelta(days=5))
    monkeypatch.setattr(chores, "SLICE", 3)
    old = {"at": later(-9 * DAY), "settled_at": later(-6 * DAY)}
    stays = [
        event(at=later(-9 * DAY)),
        event(at=later(-9 * DAY), state="given_up"),
        event(at=later(-9 * DAY), state="sent", settled_at=later(-4 * DAY)),
    ]
    for state in ("sent", "discarded"):
        event(**old, state=state)
    young = event(state="sent", settled_at=later(0))
    first = do("delete events")
    assert (first.changed, first.next) == (0, stays[-1].pk)
    assert (second := do("delete events", first.next)).changed == 2
    assert second.next == 0
    assert set(OutboxEvent.objects.all()) == {*stays, young}
