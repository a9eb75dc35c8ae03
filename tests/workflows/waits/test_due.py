"""A wait that ought to be over by now: it is told of, and ends as any other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db.models import F

from tests import engine
from tests.engine import Context, define, due_again, expire, submit, work
from workflows.models import State, Wait, Workflow
from workflows.signals import store
from workflows.telling.sentence import sentence
from workflows.telling.words import clock
from workflows.waits import wait_for_signal

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)


def waiting(**options: Any) -> Workflow:
    def wait(*, workflow: Workflow, context: Context) -> None:
        given = {"timeout": 3 * HOUR, "waiting_for": "the lab's result", **options}
        wait_for_signal(workflow, "result", "lab.done", **given)

    define([wait])
    return work(submit())


def let_it_be_overdue(**by: int) -> None:
    back = timedelta(**(by or {"hours": 2}))
    Wait.objects.update(created_at=F("created_at") - back, due_at=F("due_at") - back)


def overdue() -> list[int]:
    return list(Wait.objects.overdue().values_list("workflow_id", flat=True))


def told(workflow: Workflow) -> str:
    return sentence(Workflow.objects.with_state().get(pk=workflow.pk), None, [])


def test_after_its_due_time_it_is_overdue_and_says_so_until_the_signal_comes() -> None:
    Group.objects.get_or_create(name="laboratory")
    workflow = waiting(due=HOUR, team="laboratory")
    wait = Wait.objects.get()
    assert wait.due_at
    assert abs(wait.deadline - wait.due_at - 2 * HOUR) < timedelta(seconds=1)
    assert wait.team == "laboratory"
    assert (overdue(), told(workflow).startswith("Waiting until ")) == ([], True)
    let_it_be_overdue()
    wait = Wait.objects.get()
    assert overdue() == [workflow.pk]
    assert told(workflow) == (
        f"Waiting for the lab's result, overdue since {clock(wait.due_at)}. "
        f"It is waited for until {clock(wait.deadline)}."
    )
    due_again(workflow)
    assert work(workflow).status == "PENDING"
    assert overdue() == [workflow.pk], "looking again changes nothing"
    store.send(source="lab", dedupe_key="1", name="lab.done", workflow_id=workflow.pk, payload={})
    assert work(workflow).status == "COMPLETE"
    assert overdue() == []


def test_what_expires_is_cancelled_or_waits_for_something_else_is_not_overdue() -> None:
    workflow = waiting(due=HOUR)
    let_it_be_overdue()
    for elsewhere in ({"compensating": True}, {"waiting_for": "", "retry_count": 1}):
        before = {name: getattr(workflow, name) for name in elsewhere}
        Workflow.objects.update(**elsewhere)
        assert overdue() == [], elsewhere
        Workflow.objects.update(**before)
    Wait.objects.update(superseded=True)
    assert overdue() == []
    Wait.objects.update(superseded=False)
    assert overdue() == [workflow.pk]
    expire(workflow)
    assert work(workflow).status == "FAILED"
    assert overdue() == []


def test_without_it_a_wait_is_never_overdue() -> None:
    workflow = waiting()
    let_it_be_overdue()
    assert overdue() == []
    assert Workflow.objects.with_state().get(pk=workflow.pk).state == State.WAITING


def test_a_team_that_is_not_there_is_no_reason_to_wait_for_nobody() -> None:
    """A workflow does not fail for it, as it would for a question that nobody could answer."""
    assert waiting(due=HOUR, team="nobody").status == "PENDING"
    assert Wait.objects.get().team in ("operations", "")


@pytest.mark.parametrize(
    "options",
    [
        {"due": 3 * HOUR},
        {"due": 4 * HOUR},
        {"due": timedelta(0)},
        {"due": -HOUR},
        {"due": 3600},
        {"team": "laboratory"},
        {"due": HOUR, "team": "x" * 151},
    ],
)
def test_a_due_time_is_before_the_end_of_the_wait_and_a_team_needs_one(options: dict[str, Any]) -> None:
    workflow = waiting(**options)
    assert (workflow.status, workflow.last_error_class) == ("FAILED", "workflows.waits.wait.WaitError")
    assert not Wait.objects.exists()
