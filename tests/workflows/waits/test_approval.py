"""Waiting for a person, from inside a step: what an answer does, and what happens without one."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections

from tests import engine
from tests.engine import define, kinds, last_attempt, outcomes, submit, sweep, work, worker
from tests.workflows.waits.approvals import HOURS_72, ask, decide
from workflows.definition import WorkflowStep
from workflows.errors import ClaimLost
from workflows.models import ManualTask, Signal, Wait, Workflow
from workflows.signals import store, waking
from workflows.state import attempt_log

pytestmark = engine.ENGINE


def ask_and_swallow(*, workflow: Workflow, context: Any) -> None:
    try:
        ask(workflow=workflow, context=context)
    except Exception:
        return


def ask_and_swallow_everything(*, workflow: Workflow, context: Any) -> None:
    with suppress(BaseException):
        ask(workflow=workflow, context=context)


def test_the_server_never_shows_facts_as_the_text_of_a_statement() -> None:
    """They are a patient's, and pg_stat_activity and the server's log show that text."""
    shown = []

    def look_before_the_next_statement(execute: Any, sql: str, *rest: Any) -> Any:
        attempt_log = connections["attempt_log"].connection
        assert attempt_log is not None
        with engine.another_connection() as other:
            pid = attempt_log.info.backend_pid
            shown.extend(other.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() or ())
        return execute(sql, *rest)

    define([ask])
    submit()
    connections["attempt_log"].ensure_connection()
    with connections["attempt_log"].execute_wrapper(look_before_the_next_statement):
        engine.worker().process_next()
    assert ManualTask.objects.get().facts == [["Weight", "92 kg"], ["Age", "52"]]
    assert [query for query in shown if "INSERT INTO workflows_manualtask" in query]
    assert not [query for query in shown if "92 kg" in query]


def test_it_suspends_until_a_person_has_approved() -> None:
    define([ask])
    before = submit()
    workflow = work(before)
    assert (workflow.status, workflow.waiting_for, workflow.current_step) == ("PENDING", "May it go on?", "ask")
    assert workflow.retry_count == 0
    task = ManualTask.objects.get()
    assert workflow.invisible_until == task.expires_at == Wait.objects.get().deadline
    assert task.expires_at - before.created_at == pytest.approx(HOURS_72, abs=timedelta(seconds=30))
    assert task.facts == [["Weight", "92 kg"], ["Age", "52"]]
    assert outcomes(workflow) == {"ask": "waiting"}
    assert last_attempt(workflow).outcome == "waiting"
    assert worker().process_next() is False, "it is not due, and costs nothing"

    decide(task, approved=True, reason="Looks well")
    workflow = work(workflow)
    assert (workflow.status, workflow.waiting_for, workflow.wake_on) == ("COMPLETE", "", [])
    assert workflow.context["text"] == "ada: Looks well"
    assert kinds(workflow) == ["waiting", "completed"]
    assert Wait.objects.get().signal == Signal.objects.get()


def test_a_rejection_fails_it_with_the_reason() -> None:
    define([ask])
    workflow = work(submit())
    decide(ManualTask.objects.get(), approved=False, reason="Too light")
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "approval_rejected")
    assert workflow.last_error_message == "May it go on? Rejected by ada: Too light"


@pytest.mark.parametrize("step", [ask_and_swallow, ask_and_swallow_everything])
def test_a_step_cannot_swallow_the_suspension(step: WorkflowStep) -> None:
    define([step])
    assert work(submit()).waiting_for == "May it go on?"


def test_a_signal_for_something_else_wakes_nobody() -> None:
    define([ask])
    workflow = work(submit())
    store.store(source="x", dedupe_key="1", name="something.else", workflow_id=workflow.pk, payload={})
    assert waking.wake(workflow.pk) is False
    assert sweep() == 0
    assert engine.worker().process_next() is False


def test_a_step_that_swallows_everything_does_not_go_on_when_the_attempt_log_fails() -> None:
    define([ask_and_swallow_everything])
    workflow = submit()
    with engine.another_connection() as other, other.transaction():
        other.execute("LOCK TABLE workflows_manualtask IN SHARE MODE")
        attempt_log.execute("SET lock_timeout = 100", [])
        with pytest.raises(ClaimLost):
            worker().process_next()
    workflow.refresh_from_db()
    assert workflow.status == "PENDING"
