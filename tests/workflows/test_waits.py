"""Waiting for a person, from inside a step."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, last_attempt, make_due, outcomes, submit, work
from workflows import inbox, operations
from workflows.definition import WorkflowStep
from workflows.errors import RetryableStepError
from workflows.models import ManualTask, Signal, Wait, Workflow
from workflows.waits import ApprovalRejected, require_approval

pytestmark = engine.ENGINE

HOURS_72 = timedelta(hours=72)


def ask(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    approval = require_approval(
        workflow, "review", question="May it go on?", facts={"Weight": "92 kg", "Age": "52"}, timeout=HOURS_72
    )
    return {"text": f"{approval.decided_by}: {approval.reason}"}


def ask_and_swallow(*, workflow: Workflow, context: Any) -> None:
    try:
        ask(workflow=workflow, context=context)
    except Exception:
        return


def ask_and_swallow_everything(*, workflow: Workflow, context: Any) -> None:
    with suppress(BaseException):
        ask(workflow=workflow, context=context)


def decide(task: ManualTask, *, approved: bool, reason: str = "") -> None:
    """What an operation does: the task and the signal in one transaction, the wake-up after it."""
    user, _ = User.objects.get_or_create(username="ada")
    state = ManualTask.State.APPROVED if approved else ManualTask.State.REJECTED
    with transaction.atomic():
        ManualTask.objects.filter(pk=task.pk, state="open").update(
            state=state, decided_by=user, decided_at=timezone.now(), reason=reason
        )
        answer = {"approved": approved, "by": "ada", "reason": reason}
        name = task.signal_name
        inbox.store(source="console", dedupe_key=name, name=name, workflow_id=task.workflow_id, payload=answer)
    inbox.wake(task.workflow_id, name)


def test_the_server_never_shows_facts_as_the_text_of_a_statement() -> None:
    """They are a patient's, and pg_stat_activity and the server's log show that text."""
    shown = []

    def look_before_the_next_statement(execute: Any, sql: str, *rest: Any) -> Any:
        journal = connections["journal"].connection
        assert journal is not None
        with engine.another_connection() as other:
            pid = journal.info.backend_pid
            shown.extend(other.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() or ())
        return execute(sql, *rest)

    define([ask])
    submit()
    connections["journal"].ensure_connection()
    with connections["journal"].execute_wrapper(look_before_the_next_statement):
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

    decide(task, approved=True, reason="Looks well")
    workflow = work(workflow)
    assert (workflow.status, workflow.waiting_for, workflow.wake_on) == ("COMPLETE", "", [])
    assert workflow.context["text"] == "ada: Looks well"
    assert kinds(workflow) == ["waiting", "completed"]
    assert Signal.objects.get().answered == Wait.objects.get()


def test_a_rejection_fails_it_with_the_reason() -> None:
    define([ask])
    workflow = work(submit())
    decide(ManualTask.objects.get(), approved=False, reason="Too light")
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "approval_rejected")
    assert workflow.last_error_message == "May it go on? Rejected by ada: Too light"


def test_a_step_may_take_a_rejection_for_an_answer() -> None:
    def ask_and_go_on(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        try:
            return ask(workflow=workflow, context=context)
        except ApprovalRejected:
            return {"text": "then not"}

    define([ask_and_go_on])
    workflow = work(submit())
    decide(ManualTask.objects.get(), approved=False, reason="No")
    assert work(workflow).context["text"] == "then not"


def test_nobody_in_time_fails_it_and_closes_the_task() -> None:
    define([ask])
    workflow = work(submit())
    engine.expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "approval_expired")
    assert ManualTask.objects.get().state == "expired"


def test_a_decision_that_won_against_the_expiry_is_taken() -> None:
    """Decided in time, and the worker comes by after the deadline."""
    define([ask])
    workflow = work(submit())
    decide(ManualTask.objects.get(), approved=True)
    engine.expire(workflow)
    assert work(workflow).status == "COMPLETE"
    assert ManualTask.objects.get().state == "approved"


def test_the_answer_and_the_deadline_are_those_of_the_first_meeting() -> None:
    failing = [True]

    def fail_at_first(*, workflow: Workflow, context: Any) -> None:
        if failing[0]:
            raise RetryableStepError

    define([ask, fail_at_first])
    workflow = work(submit())
    deadline = Wait.objects.get().deadline
    for _ in range(3):  # run early, as by "run now"
        make_due(workflow)
        workflow = work(workflow)
        assert workflow.invisible_until == deadline
    assert kinds(workflow) == ["waiting"], "it waits on as before: no news"
    decide(ManualTask.objects.get(), approved=True, reason="yes")
    for _ in range(3):
        make_due(workflow)
        workflow = work(workflow)
        assert workflow.current_step == "fail_at_first"
    failing[0] = False
    make_due(workflow)
    assert work(workflow).context["text"] == "ada: yes"
    assert ManualTask.objects.count() == Wait.objects.count() == 1


def test_a_superseded_question_is_asked_again() -> None:
    define([ask])
    workflow = work(submit())
    decide(ManualTask.objects.get(), approved=False, reason="No")
    work(workflow)
    Wait.objects.update(superseded=True)
    Workflow.objects.update(status="PENDING", completed_at=None)
    workflow = work(workflow)
    assert list(Wait.objects.order_by("id").values_list("generation", "outcome")) == [(1, "rejected"), (2, "")]
    decide(ManualTask.objects.latest("id"), approved=True)
    assert work(workflow).status == "COMPLETE"


@pytest.mark.parametrize("step", [ask_and_swallow, ask_and_swallow_everything])
def test_a_step_cannot_swallow_the_suspension(step: WorkflowStep) -> None:
    define([step])
    assert work(submit()).waiting_for == "May it go on?"


def test_the_waiting_row_is_not_due_and_costs_nothing() -> None:
    define([ask])
    work(submit())
    assert engine.worker().process_next() is False


def test_the_same_fact_told_twice_is_one_signal() -> None:
    workflow = submit()
    told = [
        inbox.store(source="console", dedupe_key="decision:1", name="decision:1", workflow_id=workflow.pk, payload={})
        for _ in range(2)
    ]
    assert told == [True, False]


def test_a_signal_for_something_else_wakes_nobody() -> None:
    define([ask])
    workflow = work(submit())
    inbox.store(source="x", dedupe_key="1", name="something.else", workflow_id=workflow.pk, payload={})
    assert inbox.wake(workflow.pk, "something.else") is False
    assert inbox.wake_if_answered(workflow.pk) is False
    assert inbox.sweep() == 0
    assert engine.worker().process_next() is False


def test_a_question_that_expired_while_the_workflow_was_failed_is_asked_again_when_it_is_retried() -> None:
    def fail_meanwhile(*, workflow: Workflow, context: Any) -> None:
        if ManualTask.objects.exists() and not mended:
            raise ValueError

    mended: list[bool] = []
    define([fail_meanwhile, ask])
    workflow = work(submit())
    make_due(workflow)
    assert work(workflow).status == "FAILED"
    engine.expire(workflow)
    mended.append(True)
    operations.retry(workflow.pk, user=User.objects.create(username="boss", is_superuser=True))
    workflow = work(workflow)
    assert (workflow.status, workflow.waiting_for) == ("PENDING", "May it go on?")
    assert list(ManualTask.objects.order_by("id").values_list("state", flat=True)) == ["expired", "open"]


def test_a_decision_that_came_in_time_outlives_a_failure_and_a_retry_after_the_deadline() -> None:
    def fail_meanwhile(*, workflow: Workflow, context: Any) -> None:
        if ManualTask.objects.exists() and not mended:
            raise ValueError

    mended: list[bool] = []
    define([fail_meanwhile, ask])
    workflow = work(submit())
    decide(ManualTask.objects.get(), approved=True, reason="yes")
    assert work(workflow).status == "FAILED"
    engine.expire(workflow)
    mended.append(True)
    operations.retry(workflow.pk, user=User.objects.create(username="boss", is_superuser=True))
    assert work(workflow).context["text"] == "ada: yes"
