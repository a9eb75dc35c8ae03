"""What was asked is not asked again by later attempts, unless its answer or its expiry has failed the workflow."""

from typing import Any

import pytest
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, make_due, submit, work
from tests.workflows.waits.approvals import HOURS_72, ask, boss, decide
from tests.workflows.waits.signals import fail_until
from workflows import operations
from workflows.definition import WorkflowStep
from workflows.errors import StepError
from workflows.models import ManualTask, Wait, Workflow
from workflows.waits import ApprovalExpired, ApprovalRejected, require_approval, supersede_failed, withdraw

pytestmark = engine.ENGINE


def test_the_answer_and_the_deadline_are_those_of_the_first_meeting() -> None:
    mended: list[bool] = []
    define([ask, fail_until(mended)])
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
    mended.append(True)
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


def test_a_question_that_is_withdrawn_is_closed_at_once() -> None:
    """Left open, somebody would answer what nobody heeds any more, while the workflow goes on."""
    seen: list[Any] = []

    def ask_no_longer(*, workflow: Workflow, context: Any) -> None:
        withdraw(workflow, "review")

    def look(*, workflow: Workflow, context: Any) -> None:
        with engine.another_connection() as other:
            seen.append(other.execute("SELECT state FROM workflows_manualtask").fetchall())

    define([ask])
    workflow = work(submit())
    define([ask_no_longer, look])
    make_due(workflow)
    assert work(workflow).status == "COMPLETE"
    assert seen == [[("closed",)]]


def fail_meanwhile(mended: list[bool]) -> WorkflowStep:
    """A step that fails once the question is asked, until it is mended."""

    def fail(*, workflow: Workflow, context: Any) -> None:
        if ManualTask.objects.exists() and not mended:
            raise ValueError

    return fail


@pytest.mark.parametrize("in_time", [False, True], ids=["nobody decided in time", "decided in time"])
def test_after_a_failure_and_the_deadline_a_retry_takes_a_decision_that_came_in_time_or_asks_again(
    in_time: bool,
) -> None:
    mended: list[bool] = []
    define([fail_meanwhile(mended), ask])
    workflow = work(submit())
    if in_time:
        decide(ManualTask.objects.get(), approved=True, reason="yes")
    make_due(workflow)
    assert work(workflow).status == "FAILED"
    engine.expire(workflow)
    mended.append(True)
    operations.retry(workflow.pk, user=boss())
    workflow = work(workflow)
    told = (workflow.status, workflow.waiting_for, workflow.context.get("text"))
    assert told == (("COMPLETE", "", "ada: yes") if in_time else ("PENDING", "May it go on?", None))
    states = list(ManualTask.objects.order_by("id").values_list("state", flat=True))
    assert states == (["approved"] if in_time else ["closed", "open"])


def ask_as(how: str) -> WorkflowStep:
    """A step that asks, and does with a no, or none, what `how` says."""

    def ask_once(*, workflow: Workflow, context: Any) -> dict[str, Any] | None:
        refused: list[StepError] = []
        try:
            require_approval(workflow, "go", question="May it go on?", timeout=HOURS_72)
        except (ApprovalRejected, ApprovalExpired) as error:
            if how == "let pass":
                raise
            if how == "raised from itself":
                raise error from error
            if how == "failed in its handling":
                open("/nowhere")  # noqa: SIM115
            if how == "raised as its own":
                raise StepError("It may not go on.", code="not_approved") from None
            if how == "raised as its own from another":
                raise StepError("It may not go on.", code="not_approved") from ValueError()
            if how != "raised in a group":
                return {"text": "without"}
            refused.append(error)
        if refused:
            raise ExceptionGroup("It may not go on.", refused)
        return {"text": "approved"}

    return ask_once


@pytest.mark.parametrize(
    ("how", "asked_anew", "expired"),
    [
        ("let pass", True, False),
        ("let pass", True, True),
        ("raised from itself", True, False),
        ("raised as its own", True, True),
        ("raised as its own from another", True, False),
        ("raised in a group", True, True),
        ("failed in its handling", True, False),
        ("taken for an answer", False, False),
        ("taken for an answer", False, True),
    ],
)
def test_a_retry_asks_anew_what_has_failed_the_workflow_and_nothing_else(
    how: str, asked_anew: bool, expired: bool
) -> None:
    def fail_at_first(*, workflow: Workflow, context: Any) -> None:
        if not mended:
            raise ValueError

    mended: list[bool] = []
    define([ask_as(how), fail_at_first])
    workflow = work(submit())
    if expired:
        engine.expire(workflow)
    else:
        decide(ManualTask.objects.get(), approved=False)
    assert work(workflow).status == "FAILED"

    mended.append(True)
    operations.retry(workflow.pk, user=boss())
    workflow = work(workflow)
    assert ManualTask.objects.count() == (2 if asked_anew else 1)
    if asked_anew:
        assert workflow.waiting_for == "May it go on?"
        decide(ManualTask.objects.latest("id"), approved=True)
        workflow = work(workflow)
    assert (workflow.status, workflow.context["text"]) == ("COMPLETE", "approved" if asked_anew else "without")


def test_a_retry_asks_no_other_workflow_anew() -> None:
    """An error may be one and the same for all that are raised: it remembers what it was raised for before."""
    define([ask])
    workflow, other = submit(), submit()
    row = Wait.objects.create(workflow=other, name="go", outcome="rejected", deadline=timezone.now())
    supersede_failed(workflow.pk, ApprovalRejected("No.", wait_id=row.pk))
    row.refresh_from_db()
    assert not row.superseded
