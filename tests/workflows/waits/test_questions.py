"""How a step may put its question: with a form, to somebody or a team, and with what an expiry counts as."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from tests import engine
from tests.engine import define, kinds, submit, work
from tests.workflows.waits.approvals import HOURS_72, boss, decide
from workflows import operations
from workflows.definition import WorkflowStep
from workflows.models import Event, ManualTask, Wait, Workflow
from workflows.waits import require_approval

pytestmark = engine.ENGINE


# --- With a form ----------------------------------------------------------------------------------------


class Terms(BaseModel):
    amount: int


def ask_for_terms(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {
        "number": require_approval(workflow, "terms", question="How much?", form=Terms, timeout=HOURS_72).answer.amount
    }


def test_a_yes_fills_in_the_form() -> None:
    define([ask_for_terms])
    workflow = work(submit())
    operations.approve(ManualTask.objects.get().pk, user=boss(), answer={"amount": 7})
    workflow = work(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 7)


def test_an_answer_that_does_not_fit_the_form_fails_and_is_asked_for_again_on_a_retry() -> None:
    """A form may have changed since a person filled it in: their answer must not fail the workflow for ever."""
    define([ask_for_terms])
    workflow = work(submit())
    # As an operation of another release stored it: this one may refuse what does not fit.
    decide(ManualTask.objects.get(), approved=True, answer={"amount": "much"})
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "answer_invalid")
    assert workflow.last_error_message == "The answer does not fit Terms: amount (int_parsing)."
    operations.retry(workflow.pk, user=boss())
    work(workflow)
    operations.approve(ManualTask.objects.open().get().pk, user=boss(), answer={"amount": 7})
    assert work(workflow).status == "COMPLETE"


# --- To whom, and until when ----------------------------------------------------------------------------


def require(**options: Any) -> WorkflowStep:
    """A step that asks, with these options of `require_approval`."""

    def ask_so(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        approval = require_approval(workflow, "review", question="May it go on?", timeout=HOURS_72, **options)
        return {"text": f"{approval.decided_by}: {approval.reason}"}

    return ask_so


def test_a_task_for_somebody_is_theirs_and_was_claimed_by_nobody() -> None:
    anna = User.objects.create(username="anna")
    define([require(assignee="anna")])
    work(submit())
    task = ManualTask.objects.get()
    assert (task.assignee, task.claimed_at) == (anna, None)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"assignee": "nobody"}, "assignee_unknown"),
        ({"team": "nobodies"}, "team_unknown"),
        ({"requested_by": "nobody", "four_eyes": True}, "requester_unknown"),
        ({"four_eyes": True}, "requester_unknown"),
    ],
)
def test_a_question_to_nobody_is_tried_again_and_not_put(options: dict[str, Any], code: str) -> None:
    define([require(**options)])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count, workflow.last_error_code) == ("PENDING", 1, code)
    assert ("requested_by names no user" in workflow.last_error_message) == (code == "requester_unknown")
    assert not ManualTask.objects.exists()
    assert not Wait.objects.exists()


@pytest.mark.parametrize(
    ("on_expiry", "status", "code"),
    [
        ("approved", "COMPLETE", ""),
        ("rejected", "FAILED", "approval_rejected"),
        ("expired", "FAILED", "approval_expired"),
    ],
)
def test_an_expiry_counts_as_it_was_said_and_is_told_in_the_history(on_expiry: str, status: str, code: str) -> None:
    define([require(on_expiry=on_expiry)])
    workflow = work(submit())
    engine.expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == (status, code)
    assert kinds(workflow)[:2] == ["waiting", "expired"]
    detail = Event.objects.get(workflow=workflow, kind="expired").detail
    task = ManualTask.objects.get()
    assert (task.state, detail) == ("expired", {"task": task.pk, "type": "approval", "counts_as": on_expiry})
