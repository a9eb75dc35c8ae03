"""Two at once at a call that was made by hand, on two real connections: it is on record once, or the call is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.concurrency.rivals import Rivals
from tests.workflows.features.by_hand.till import SAID, Till, lead, say
from workflows import operations
from workflows.features.by_hand import operations as by_hand
from workflows.models import Confirmation, Effect, Event, Workflow
from workflows.operations import ended_at

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"]),
    pytest.mark.usefixtures("engine"),
]
ROUNDS = 8


@pytest.fixture
def people(db: None) -> list[User]:
    return [lead(name) for name in ("carla", "dan", "eve")]


def made(row: Workflow) -> int:
    return Effect.objects.filter(workflow=row, state="done").exclude(by_hand="").count()


def aside() -> None:
    """No worker takes up what is over here."""
    Workflow.objects.filter(status="PENDING").update(queue="elsewhere")


@pytest.mark.parametrize("other", ["says it, too", "retries"])
def test_what_is_said_beside_a_retry_or_another_is_one_of_the_two(
    rivals: Rivals, people: list[User], other: str
) -> None:
    first, second, _ = people
    ends: Counter[str] = Counter()
    for _ in range(ROUNDS):
        row = Till().declined()
        said: dict[str, Any] = {"reason": "Paid.", "seen": ended_at(row), **SAID}
        opposite: dict[str, Callable[[], Any]] = {
            "says it, too": partial(by_hand.say, row.pk, user=second, **said),
            "retries": partial(operations.retry, row.pk, user=second),
        }
        results = rivals.race(partial(by_hand.say, row.pk, user=first, **said), opposite[other])
        done = [not isinstance(each, Exception) for each in results]
        assert sum(done) == 1, results
        assert made(row) == int(done[0] or other == "says it, too")
        assert Event.objects.filter(workflow=row, kind__in=["by_hand", "retried"]).count() == 1
        ends[str(done)] += 1
        aside()
    assert len(ends) == 2, ends


@pytest.mark.parametrize("other", ["retries", "confirms it, too", "withdraws it"])
def test_what_is_confirmed_beside_its_opposite_is_one_of_the_two(
    rivals: Rivals, people: list[User], other: str
) -> None:
    first, second, third = people
    for _ in range(ROUNDS):
        row = Till().declined(two_people=True)
        say(row, first)
        seen = list(Confirmation.objects.filter(workflow=row).values_list("pk", flat=True))
        opposite: dict[str, Callable[[], Any]] = {
            "retries": partial(operations.retry, row.pk, user=third),
            "confirms it, too": partial(by_hand.confirm, row.pk, user=third, seen=seen, reason="Seen."),
            "withdraws it": partial(by_hand.do_not_confirm, row.pk, user=first, seen=seen, reason="Not so."),
        }
        results = rivals.race(partial(by_hand.confirm, row.pk, user=second, seen=seen, reason="Seen."), opposite[other])
        done = [not isinstance(each, Exception) for each in results]
        assert sum(done) <= 1, results
        is_on_record = done[0] or (done[1] and other == "confirms it, too")
        assert made(row) == int(is_on_record)
        assert Workflow.objects.get(pk=row.pk).status == ("PENDING" if is_on_record else "FAILED")
        aside()
