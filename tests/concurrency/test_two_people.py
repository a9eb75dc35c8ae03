"""Two at once at what lets a charge be made again, on two real connections: it is decided once, by two people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.concurrency.rivals import Rivals
from tests.workflows import rows
from tests.workflows.operations.two import lead
from workflows import operations
from workflows.models import Confirmation, Event, ManualTask, Signal, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 10
RIGHTS = ("decide_manualtask", "resolve_manualtask", "retry_workflow", "cancel_paid_workflow")


@pytest.fixture
def people() -> list[User]:
    """The one who has said it, and two who may confirm it."""
    return [lead(name, *RIGHTS) for name in ("carla", "dan", "eve")]


def confirmed(row: int) -> list[str]:
    found = Confirmation.objects.filter(workflow=row, state="confirmed")
    return [each.decided_by.get_username() for each in found.select_related("decided_by") if each.decided_by]


def answered(row: int) -> list[Any]:
    return [each.payload["approved"] for each in Signal.objects.filter(workflow=row, source="console")]


def test_of_two_who_confirm_an_answer_one_does_and_the_other_is_told(rivals: Rivals, people: list[User]) -> None:
    first, *seconds = people
    for _ in range(ROUNDS):
        task = rows.unclear_charge()
        seen = [rows.to_confirm(first, Workflow(pk=task.workflow_id), task).pk]
        does = [partial(operations.confirm, task.pk, user=each, seen=seen, reason="Nor in mine.") for each in seconds]
        results = rivals.race(*does)
        (winner,) = confirmed(task.workflow_id)
        assert results[("dan", "eve").index(winner)] is None, results
        assert str(results[1 - ("dan", "eve").index(winner)]).startswith(f"{winner} rejected it already, at "), results
        assert answered(task.workflow_id) == [False]


@pytest.mark.parametrize("other", ["it happened", "not confirmed", "withdrawn"])
def test_a_confirmation_beside_its_opposite_is_one_of_the_two(rivals: Rivals, people: list[User], other: str) -> None:
    first, second, third = people
    ends: Counter[str] = Counter()
    for _ in range(ROUNDS):
        task = rows.unclear_charge()
        asked = rows.to_confirm(first, Workflow(pk=task.workflow_id), task)
        opposite: dict[str, Callable[[], Any]] = {
            "it happened": partial(
                operations.approve, task.pk, user=third, answer={"charge_id": "ch_9", "payment_status": "paid"}
            ),
            "not confirmed": partial(operations.do_not_confirm, task.pk, user=third, seen=[asked.pk], reason="No."),
            "withdrawn": partial(operations.do_not_confirm, task.pk, user=first, seen=[asked.pk], reason="No."),
        }
        confirm = partial(operations.confirm, task.pk, user=second, seen=[asked.pk], reason="Nor in mine.")
        results = rivals.race(confirm, opposite[other])
        asked.refresh_from_db()
        task.refresh_from_db()
        done = [not isinstance(each, Exception) for each in results]
        assert sum(done) <= 1, results
        if done[0]:
            assert (asked.state, task.state, answered(task.workflow_id)) == ("confirmed", "rejected", [False])
        elif done[1] and other == "it happened":
            assert (asked.state, task.state, answered(task.workflow_id)) == ("stale", "approved", [True])
        else:
            assert (task.state, answered(task.workflow_id)) == ("open", [])
        ends[str(done)] += 1
    assert ends[str([True, False])], (ends, results)
    assert ends[str([False, True])], (ends, results)


def test_of_two_who_say_it_first_one_has_said_it_and_neither_alone(rivals: Rivals, people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = rows.unclear_charge()
        does = [partial(operations.reject, task.pk, user=each, reason="Not there.") for each in people[:2]]
        results = rivals.race(*does)
        assert Confirmation.objects.filter(workflow=task.workflow_id).count() == 1, results
        assert ManualTask.objects.get(pk=task.pk).state == "open"
        assert answered(task.workflow_id) == []


def test_of_two_who_confirm_a_retry_one_does(rivals: Rivals, people: list[User]) -> None:
    first, *seconds = people
    for _ in range(ROUNDS):
        row = rows.refunded()
        seen = [rows.to_confirm(first, row).pk]
        does = [partial(operations.confirm_retry, row.pk, user=each, seen=seen, reason="Nor I.") for each in seconds]
        results = rivals.race(*does)
        assert sum(not isinstance(each, Exception) for each in results) == 1, results
        assert len(confirmed(row.pk)) == 1
        assert Event.objects.filter(workflow=row.pk, kind="retried").count() == 1


@pytest.mark.parametrize("whose", ["own", "another"])
def test_a_retry_that_is_asked_for_and_confirmed_at_once_has_two_people(
    rivals: Rivals, people: list[User], whose: str
) -> None:
    """What the confirmer had not seen is not confirmed by them."""
    first, second, third = people
    for _ in range(ROUNDS):
        row = rows.refunded()
        old = rows.to_confirm(first, row)
        Confirmation.objects.filter(pk=old.pk).update(state="withdrawn", decided_by=first)
        ask = partial(operations.retry, row.pk, user=second if whose == "own" else third, reason="So.")
        confirm = partial(operations.confirm_retry, row.pk, user=second, seen=[old.pk], reason="Nor I.")
        results = rivals.race(ask, confirm)
        assert isinstance(results[1], Exception), results
        assert confirmed(row.pk) == []
        assert Workflow.objects.get(pk=row.pk).status == "FAILED"
