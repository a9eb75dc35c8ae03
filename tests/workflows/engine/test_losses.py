"""What is lost at the same step again and again: a person is asked, unless it is the database that has a bad hour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from tests import engine
from tests.engine import again, define, due_again, kinds, last_attempt, submit, work, worker
from workflows.definition import Step
from workflows.engine import loop, poison
from workflows.models import Attempt, Event, ManualTask, Workflow
from workflows.postgres.statements import execute
from workflows.state.attempt_log import OpenAttempt

pytestmark = engine.ENGINE


def run_sql(*, workflow: Workflow, context: Any) -> None:
    if workflow.payload.get("sql"):
        execute(workflow.payload["sql"])


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is rescheduled is due at once, and a worker that has lost its database goes on at once."""
    monkeypatch.setattr(poison, "LOSSES", poison.LOSSES._replace(base_delay=0.0))
    monkeypatch.setattr(loop, "LOST_DELAY", 0.0)
    yield
    connections.close_all()


def drain() -> None:
    """A worker that works until nothing is due, through every loss of its database."""
    worker().run(drain=True)


def lost(times: int, *, step: str = "run_sql", workflow: Workflow | None = None, reschedule: bool = True) -> Workflow:
    """A workflow that was lost so often in a row, at that step, and rescheduled; nothing else was decided."""
    define([run_sql])
    workflow = workflow or submit()
    begin = Attempt.objects.filter(workflow=workflow).count() + 1
    for number in range(begin, begin + times):
        fields = {"outcome": "lost", "closed_at": timezone.now(), "died_in": step}
        Attempt.objects.create(workflow=workflow, number=number, worker="gone:1", **fields)
    if reschedule:
        due_again(workflow)
    return workflow


def decided(outcome: str, workflow_id: int = 987_654_321) -> None:
    """An attempt of another workflow."""
    number = Attempt.objects.filter(workflow=workflow_id).count() + 1
    Attempt.objects.create(
        workflow_id=workflow_id, number=number, worker="here:1", outcome=outcome, closed_at=timezone.now()
    )


def asked() -> bool:
    return ManualTask.objects.filter(task_type="keeps_being_lost", state="open").exists()


def test_a_step_that_loses_the_database_each_time_asks_a_person_while_others_go_on() -> None:
    define([run_sql])
    bad = submit({"sql": "SELECT pg_terminate_backend(pg_backend_pid())"})
    for _ in range(10):
        submit()
    drain()
    assert Workflow.objects.filter(status="COMPLETE").count() == 10
    assert Attempt.objects.filter(workflow=bad, outcome="lost", died_in="run_sql").count() == 10
    assert ManualTask.objects.get().task_type == "keeps_being_lost"
    assert last_attempt(bad).outcome == "held"


def test_a_bad_hour_asks_nobody_and_what_it_lost_is_tried_again_after_it() -> None:
    workflows = [lost(12) for _ in range(3)]
    for workflow in workflows:
        assert work(workflow).status == "COMPLETE"
    assert not ManualTask.objects.exists()


@pytest.mark.parametrize(
    ("outcome", "says_so"),
    [("complete", True), ("compensated", True), ("lost", False), ("vanished", False), ("held", False)],
)
def test_one_decision_in_between_says_that_the_database_was_there(outcome: str, says_so: bool) -> None:
    workflow = lost(5)
    decided(outcome)
    assert (work(lost(5, workflow=workflow)).status == "PENDING", asked()) == (says_so, says_so)


def test_a_decision_before_the_first_loss_or_after_the_last_says_nothing() -> None:
    decided("complete")
    workflow = lost(10)
    decided("complete")
    assert work(workflow).status == "COMPLETE"


def test_nine_are_not_enough_nor_ten_at_two_steps() -> None:
    workflow = lost(4)
    decided("complete")
    assert work(lost(5, workflow=workflow)).status == "COMPLETE"

    workflow = lost(4)
    decided("complete")
    assert work(lost(6, workflow=workflow, step="another")).status == "COMPLETE"
    assert not asked()


def test_the_second_ten_ask_when_the_first_ten_were_a_bad_hour() -> None:
    workflow = lost(15)
    decided("complete")
    assert work(lost(5, workflow=workflow)).status == "PENDING"
    assert asked()


def test_no_more_than_the_last_attempts_of_others_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison, "OTHERS_LIMIT", 3)
    workflow = lost(5)
    decided("complete")
    for _ in range(3):
        decided("lost")
    assert work(lost(5, workflow=workflow)).status == "COMPLETE"


@pytest.mark.parametrize("bad_hour", [True, False])
def test_an_undo_that_is_lost_asks_a_person_unless_it_was_a_bad_hour(bad_hour: bool) -> None:
    undone: list[int] = []

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {}

    def fail(*, workflow: Workflow, context: Any) -> None:
        raise ValueError

    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        undone.append(workflow.pk)

    steps = [Step(call, once=True, undo=undo), fail]
    define(steps)
    workflow = lost(5, workflow=work(submit()), step="undo of call")
    if not bad_hour:
        decided("complete")
    lost(5, workflow=workflow, step="undo of call")
    define(steps)
    work(workflow)
    assert (undone, ManualTask.objects.exists()) == (([workflow.pk], False) if bad_hour else ([], True))


# --- The worker that takes what another one has just lost -----------------------------------------------


@pytest.mark.parametrize("last", ["lost", "vanished", ""])
def test_what_is_lost_twice_is_rescheduled_though_another_worker_was_quicker_than_the_one_that_lost_it(
    last: str,
) -> None:
    """Six workers with a backlog lost it ten times within fifteen seconds. How the last attempt ended is open yet."""
    workflow = lost(2 if last == "lost" else 3, reschedule=False)
    ended = {"outcome": last, "closed_at": None if last == "" else timezone.now()}
    Attempt.objects.filter(pk=last_attempt(workflow).pk).update(**ended)
    workflow = work(workflow)
    assert (last_attempt(workflow).outcome, last_attempt(workflow).steps) == ("put_back", [])
    event = Event.objects.filter(workflow=workflow, kind="put_back").latest("id")
    assert event.detail == {"reason": f"Its claim was lost {2 if last == 'lost' else 3} times in a row."}
    assert work(workflow).status == "COMPLETE", "once that is over"


@pytest.mark.parametrize("times", [1, 2])
def test_it_is_rescheduled_once_for_each_loss_and_not_for_the_first(times: int) -> None:
    workflow = lost(times, reschedule=times > 1)
    assert work(workflow).status == "COMPLETE"
    assert "put_back" not in kinds(workflow)


def test_the_undo_that_another_worker_has_just_lost_is_rescheduled_as_well() -> None:
    define([run_sql])
    workflow = lost(2, workflow=submit(compensating=True), reschedule=False)
    workflow = work(workflow)
    assert (workflow.status, last_attempt(workflow).outcome) == ("PENDING", "put_back")
    assert again(workflow).status == "FAILED"


def test_a_workflow_that_got_the_id_after_a_failover_is_not_postponed() -> None:
    """What was lost is gone: its worker postpones nothing of another worker's."""
    workflow = submit()
    row = Attempt.objects.create(workflow=workflow, number=1, worker="test-host:2")
    hand = worker().in_hand
    hand.attempt = OpenAttempt(row.pk, 1, workflow.pk, "3", worker="test-host:1")
    hand.close_lost(reschedule_reason="The engine itself failed.")
    assert (last_attempt(workflow).outcome, kinds(workflow)) == ("", [])
