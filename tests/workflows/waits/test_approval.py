"""Waiting for a person, from inside a step."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.utils import timezone
from pydantic import BaseModel, create_model

from tests import engine
from tests.engine import define, kinds, last_attempt, make_due, outcomes, submit, work, worker
from workflows import inbox, journal, operations
from workflows.definition import WorkflowStep
from workflows.errors import ClaimLost, RetryableStepError, StepError
from workflows.models import Event, ManualTask, Signal, Wait, Workflow
from workflows.waits import ApprovalExpired, ApprovalRejected, require_approval, supersede_failed, withdraw

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
    inbox.wake(task.workflow_id)


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
    assert Wait.objects.get().signal == Signal.objects.get()


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
    assert inbox.wake(workflow.pk) is False
    assert inbox.sweep() == 0
    assert engine.worker().process_next() is False


def fail_meanwhile(mended: list[bool]) -> WorkflowStep:
    """A step that fails once the question is asked, until it is mended."""

    def fail(*, workflow: Workflow, context: Any) -> None:
        if ManualTask.objects.exists() and not mended:
            raise ValueError

    return fail


def test_a_question_that_expired_while_the_workflow_was_failed_is_asked_again_when_it_is_retried() -> None:
    mended: list[bool] = []
    define([fail_meanwhile(mended), ask])
    workflow = work(submit())
    make_due(workflow)
    assert work(workflow).status == "FAILED"
    engine.expire(workflow)
    mended.append(True)
    operations.retry(workflow.pk, user=boss())
    workflow = work(workflow)
    assert (workflow.status, workflow.waiting_for) == ("PENDING", "May it go on?")
    assert list(ManualTask.objects.order_by("id").values_list("state", flat=True)) == ["closed", "open"]


def test_a_decision_that_came_in_time_outlives_a_failure_and_a_retry_after_the_deadline() -> None:
    mended: list[bool] = []
    define([fail_meanwhile(mended), ask])
    workflow = work(submit())
    decide(ManualTask.objects.get(), approved=True, reason="yes")
    assert work(workflow).status == "FAILED"
    engine.expire(workflow)
    mended.append(True)
    operations.retry(workflow.pk, user=boss())
    assert work(workflow).context["text"] == "ada: yes"


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


@pytest.mark.parametrize("expired", [False, True], ids=["rejected", "expired"])
@pytest.mark.parametrize(
    ("how", "asked_anew"),
    [
        ("let pass", True),
        ("raised from itself", True),
        ("raised as its own", True),
        ("raised as its own from another", True),
        ("raised in a group", True),
        ("failed in its handling", True),
        ("taken for an answer", False),
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


# --- With a form ----------------------------------------------------------------------------------------


class Terms(BaseModel):
    amount: int


def ask_for_terms(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {
        "number": require_approval(workflow, "terms", question="How much?", form=Terms, timeout=HOURS_72).answer.amount
    }


def boss() -> User:
    return User.objects.get_or_create(username="boss", is_superuser=True)[0]


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
    tell_answer(ManualTask.objects.get(), {"amount": "much"})
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "answer_invalid")
    assert workflow.last_error_message == "The answer does not fit Terms: amount (int_parsing)."
    operations.retry(workflow.pk, user=boss())
    work(workflow)
    operations.approve(ManualTask.objects.open().get().pk, user=boss(), answer={"amount": 7})
    assert work(workflow).status == "COMPLETE"


def tell_answer(task: ManualTask, answer: dict[str, Any]) -> None:
    """As an operation of another release stored it: this one may refuse what does not fit."""
    name = task.signal_name
    with transaction.atomic():
        ManualTask.objects.filter(pk=task.pk).update(state="approved", decided_by=boss(), decided_at=timezone.now())
        told = {"approved": True, "by": "boss", "reason": "", "answer": answer}
        inbox.store(source="console", dedupe_key=name, name=name, workflow_id=task.workflow_id, payload=told)
    inbox.wake(task.workflow_id)


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
    assert detail == {"task": ManualTask.objects.get().pk, "counts_as": on_expiry}


def test_a_step_that_swallows_everything_does_not_go_on_when_the_journal_fails() -> None:
    define([ask_and_swallow_everything])
    workflow = submit()
    with engine.another_connection() as other, other.transaction():
        other.execute("LOCK TABLE workflows_manualtask IN SHARE MODE")
        journal.execute("SET lock_timeout = 100", [])
        with pytest.raises(ClaimLost):
            worker().process_next()
    workflow.refresh_from_db()
    assert workflow.status == "PENDING"


def test_a_form_that_the_console_could_not_find_is_refused() -> None:
    made = create_model("Made", weight=(int, ...))

    def ask_for_it(*, workflow: Workflow, context: Any) -> None:
        require_approval(workflow, "review", question="May it go on?", timeout=HOURS_72, form=made)

    define([ask_for_it])
    assert work(submit()).status == "FAILED"
    assert not ManualTask.objects.exists()
