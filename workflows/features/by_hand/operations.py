"""DONE BY HAND: a person made the call at which a workflow failed, outside, and says under which reference.

The ledger gets a new generation of the call: DONE, with what the person says it returned, and never called. Then the
workflow starts again from its first step. What lets money come back by itself is not said here: see
`engine.compensation`.

Only the one call may be said that the workflow failed at, and of which the ledger knows that it was not made. A call in
doubt is found out first, or the patient would pay twice. Where it charges, or the retry does, a second user confirms
it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import Q

from workflows import extension
from workflows.definition import Step, WorkflowDefinition, definitions, titled_step
from workflows.effects import DONE, KEPT, NOT_DONE, is_unclear, key_of
from workflows.effects.rows import begin_again
from workflows.engine import compensation, undo_doubts, undo_question
from workflows.engine.extension import Hooks
from workflows.engine.results import last_error
from workflows.errors import NotAllowed
from workflows.models import Attempt, Confirmation, Correction, Effect, Event, ManualTask, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.operations import answers, two_people
from workflows.operations.guards import (
    RESOLVE,
    RETRY,
    after_commit,
    lock_workflow,
    record_event,
    require,
    require_reason,
    require_status,
    short_transaction,
    stated,
    why_emptied,
)
from workflows.operations.retracting import left_nothing
from workflows.operations.retrying import ended_at, start_again, why_not_charge_again, why_not_retry
from workflows.signals import store
from workflows.state import history, transitions

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONGEST_REFERENCE = 200
ASKED = "It is not on record yet: another user has to confirm it."


class Call(NamedTuple):
    """The call that a failed workflow stopped at, and that was not made: its step, and its latest effect."""

    definition: WorkflowDefinition
    step: Step
    effect: Effect


# --- Saying it ----------------------------------------------------------------------------------------


def say(
    workflow_id: int, *, user: User, reason: str, reference: str, result: Mapping[str, Any], seen: Collection[int]
) -> str:
    """Put the call on record as made by hand, and start the workflow again; return a sentence if that waits.

    `reference` is what it is found by outside, `result` what the step returns. `seen` is the end that the user was
    shown (`ended_at`).
    """
    require(user, RESOLVE)
    require_reason(reason, "what was done by hand")
    with short_transaction():
        workflow = _lock(workflow_id)
        if list(seen) != ended_at(workflow):
            raise NotAllowed("It was retried since you looked, and has ended again: look at it again.")
        if refusal := why_not_say(workflow, user):
            raise NotAllowed(refusal)
        call = _call_of(workflow)
        checked = answers.checked_result(call.definition, call.step, result)
        said = {"call": call.effect.pk, "reference": _checked_reference(reference), "result": checked}
        if not is_for_two(workflow):
            return _record(workflow, call, said, user=user, reason=reason)
        told = {"said": "by_hand", "step": call.effect.step, **_shown(workflow, said)}
        two_people.ask(workflow_id, user=user, reason=reason, decision=two_people.BY_HAND, answer=said, **told)
        return ASKED


def confirm(workflow_id: int, *, user: User, seen: Collection[int], reason: str) -> str:
    """Confirm what a colleague has said was made by hand. `reason` says what this user has seen outside."""
    require(user, RESOLVE)
    require_reason(reason, "a confirmation")
    with short_transaction():
        workflow = _lock(workflow_id)
        asked = two_people.find(seen, workflow_id, decision=two_people.BY_HAND)
        told = two_people.confirm(asked, user=user) | {"note": stated(reason)}
        if refusal := why_not_say(workflow, user):
            raise NotAllowed(refusal)
        call, said = _call_of(workflow), dict(asked.answer or {})
        if said.get("call") != call.effect.pk:  # this release has it under another step
            raise NotAllowed(two_people.GONE)
        said["result"] = answers.checked_result(call.definition, call.step, said["result"])
        return _record(workflow, call, said, user=user, reason=asked.reason, **told)


def do_not_confirm(workflow_id: int, *, user: User, seen: Collection[int], reason: str) -> str:
    """Withdraw what one has said oneself, or do not confirm a colleague's. The workflow stays failed."""
    require(user, RESOLVE)
    require_reason(reason, "that")
    with short_transaction():
        lock_workflow(workflow_id)
        asked = two_people.find(seen, workflow_id, decision=two_people.BY_HAND)
        return two_people.close(asked, user=user, reason=reason, said="by_hand")


def _lock(workflow_id: int) -> Workflow:
    workflow, state = lock_workflow(workflow_id)
    require_status(
        workflow, state, Workflow.Status.FAILED, "of a failed workflow a call can be said to be made by hand"
    )
    return workflow


def _record(workflow: Workflow, call: Call, said: Mapping[str, Any], *, user: User, reason: str, **told: Any) -> str:
    effect, generation = call.effect, call.effect.generation + 1
    Effect.objects.create(
        workflow=workflow,
        step=effect.step,
        generation=generation,
        state=DONE,
        idempotency_key=key_of(workflow, effect.step, generation),
        attempt=effect.attempt,
        result=said["result"],
        by_hand=said["reference"],
        settled_at=ClockTimestamp(),
        settled_by=user.get_username(),
        has_undo=call.step.undo is not None,
    )
    start_again(workflow)
    told |= _shown(workflow, said)
    record_event(workflow.pk, Event.Kind.BY_HAND, user, step=effect.step, reason=reason, **told)
    return ""


def _checked_reference(reference: str) -> str:
    if not (found := stated(reference)):
        raise NotAllowed("What was done by hand has a reference in the other system.")
    if len(found) > LONGEST_REFERENCE:
        raise NotAllowed(f"A reference has at most {LONGEST_REFERENCE} characters.")
    return found


def _shown(workflow: Workflow, said: Mapping[str, Any]) -> dict[str, Any]:
    return answers.shown(workflow.pk, result=said["result"], reference=said["reference"])


# --- Whether it can be said ---------------------------------------------------------------------------


def is_for_two(workflow: Workflow) -> bool:
    """Whether a second user has to confirm it: the call charges, or the retry charges what was refunded."""
    step = _call_of(workflow).effect.step
    return two_people.takes_two(workflow.workflow_type, step) or bool(two_people.is_needed_to_retry(workflow.pk))


def why_not_say(workflow: Workflow, user: User) -> str:
    """Why `user` may not say it of this workflow; empty if they may."""
    if refusal := why_no_call(workflow):
        return refusal
    if not user.has_perm(RETRY):
        return "It starts the workflow again: ask somebody who may retry it."
    if Correction.objects.open().filter(workflow=workflow.pk).exists():
        return "Somebody has asked for a correction: approve the correction, or do not correct it."
    return why_not_retry(workflow.pk, user)


def why_not_confirm(workflow: Workflow, asked: Confirmation, user: User) -> str:
    """Why `user` may not confirm it; empty if they may."""
    refusal = why_no_call(workflow) or two_people.why_not_confirm(asked, user)
    return refusal or why_not_charge_again(workflow.pk, user)


def why_no_call(workflow: Workflow) -> str:
    """Why there is no call of this workflow that may be said to be made by hand; empty if there is one."""
    try:
        _call_of(workflow)
    except NotAllowed as refusal:
        return str(refusal)
    return ""


def failed_call(workflow: Workflow) -> Call | None:
    """The call that may be said to be made by hand."""
    return _call_of(workflow) if not why_no_call(workflow) else None


def _call_of(workflow: Workflow) -> Call:
    """The call at which the workflow failed, and which was not made. Raises NotAllowed."""
    if workflow.status != Workflow.Status.FAILED or workflow.cancelled_at:
        raise NotAllowed("Only the call at which a workflow has failed by itself can be said to be made by hand.")
    if refusal := why_emptied(workflow):
        raise NotAllowed(refusal)
    if (definition := definitions().get(workflow.workflow_type)) is None:
        raise NotAllowed("This release does not know the type of the workflow, nor what its calls return.")
    titled = titled_step(workflow.workflow_type, workflow.current_step)
    step = definition.find_step(workflow.current_step)
    if step is None or not step.once:
        raise NotAllowed(f"It failed at {titled}, which makes no call that is on record: a retry runs it again.")
    if step.returns is None:
        raise NotAllowed(f"Nobody can say what {titled} returns, because its step does not declare it.")
    calls = Effect.objects.filter(workflow=workflow.pk, step__in=step.names, undo=False)
    latest = list(calls.order_by("step", "-generation").distinct("step"))
    if any(map(is_unclear, latest)):
        raise NotAllowed(f"It is unclear whether {titled} happened: retry it. A retry finds it out, or asks a person.")
    if any(each.state in (DONE, KEPT) for each in latest):
        raise NotAllowed(f"{titled} is on record as done: a retry does not call it again.")
    not_made = [each for each in latest if each.state == NOT_DONE]
    if not not_made:
        raise NotAllowed(f"The call of {titled} was not tried: retry it first.")
    return Call(definition, step, not_made[0])


# --- Retracting it ------------------------------------------------------------------------------------


def said_by_hand(workflow: Workflow) -> list[int]:
    """The ids of the workflow's calls that stand as made by hand, newest first."""
    made = Effect.objects.filter(workflow=workflow.pk, state=DONE).exclude(by_hand="")
    return list(made.order_by("-call_number").values_list("pk", flat=True))


def retract(workflow_id: int, *, user: User, reason: str, seen: Collection[int]) -> str:
    """Say that the call was not made by hand after all; return what becomes of the workflow, in a sentence.

    The call is on record as not made. The workflow fails again as it had failed before, unless it has failed meanwhile,
    or is being reversed: then that goes on without this call. `seen` is the call that the user was shown.
    """
    require(user, RESOLVE)
    require_reason(reason, "what is retracted")
    with short_transaction():
        workflow, _ = lock_workflow(workflow_id)
        made = Effect.objects.filter(workflow=workflow_id, pk__in=seen, state=DONE).exclude(by_hand="").first()
        if made is None:
            raise NotAllowed("It does not stand as made by hand any more: look at it again.")
        if refusal := _why_built_on(workflow, made):
            raise NotAllowed(refusal)
        # As a call that was refused: the next run calls it, under this generation's key.
        Effect.objects.filter(pk=made.pk).update(
            state=NOT_DONE, result=None, by_hand="", settled_at=None, settled_by="", undo_failures=0, undo_unavailable=0
        )
        begin_again(workflow, set(Effect.objects.filter(_later(made)).values_list("step", flat=True)) - {made.step})
        told = {"said": "by_hand", "answered_by": made.settled_by}
        record_event(workflow_id, Event.Kind.RETRACTED, user, step=made.step, reason=reason, **told)
        if workflow.status == Workflow.Status.FAILED:
            return "It is retracted; the workflow stays failed."
        if workflow.compensating:
            transitions.make_due(workflow_id)
            return "It is retracted; the rest is reversed without it."
        return _fail_again(workflow)


def _fail_again(workflow: Workflow) -> str:
    """Fail a workflow with the error that it had failed with before its call was said to be made by hand."""
    failure = Event.objects.filter(workflow=workflow.pk, kind=Event.Kind.FAILED).order_by("-id").first()
    detail = failure.detail if failure else {}
    error: dict[str, Any] = {
        name: str(detail.get(name) or "") for name in ("error_class", "error_code", "error_message")
    }
    step = failure.step if failure else workflow.current_step
    reversing = compensation.fail_or_compensate(workflow, step=step, extra_columns=last_error(error))
    history.record(workflow.pk, Event.Kind.FAILED, step=step, finishes=not reversing, **error)
    if reversing:
        # What a person has left as it is, is done again since: nothing of it is reversed unasked.
        asks = undo_question.mark_again(workflow.pk)
        history.record(workflow.pk, Event.Kind.COMPENSATING, **asks)
        next_ = "a person is asked before it is reversed" if asks else "what it has done is reversed"
        return f"It is retracted; the workflow fails again, and {next_}."
    Hooks.of(extension.of_workers()).tell(workflow, "failed")
    if workflow.parent_id is not None:
        after_commit(partial(store.try_notify_parent, workflow.pk))
    return "It is retracted; the workflow has failed again."


def _later(made: Effect) -> Q:
    """Its workflow's calls after this one. The numbers are compared, because the clock may have been set back."""
    return Q(workflow=made.workflow_id, call_number__gt=made.call_number)


def why_not_retract(workflow: Workflow) -> str:
    """Why what was said to be made by hand stands; empty if it can be retracted."""
    made = Effect.objects.filter(pk__in=said_by_hand(workflow)[:1]).first()
    return _why_built_on(workflow, made) if made else "Nothing stands as made by hand."


def _why_built_on(workflow: Workflow, made: Effect) -> str:
    if workflow.status == Workflow.Status.COMPLETE:
        return "Its workflow is complete: the call is a part of what it has done."
    if Attempt.objects.filter(workflow=workflow.pk, closed_at=None).exists():
        return "A worker was at it a moment ago, and how that ended is not known yet; try again in a moment."
    later = Effect.objects.filter(_later(made)).order_by("call_number")
    if since := next((each for each in later if not left_nothing(each, made)), None):
        begun = f"{'The reversal of ' if since.undo else ''}{titled_step(workflow.workflow_type, since.step)}"
        return f"{begun} was started since, and builds on it."
    if Workflow.objects.filter(parent=workflow.pk, created_at__gte=made.first_begun_at).exists():
        return "Other workflows were started by it since, and build on it."
    question = f"{undo_doubts.QUESTION_PREFIX}{made.step}:{made.generation}"
    asked = ManualTask.objects.filter(workflow=workflow.pk, wait__name=question, wait__superseded=False)
    if asked.filter(state__in=[ManualTask.State.APPROVED, ManualTask.State.REJECTED]).exists():
        return "The question of its reversal is answered: that answer can be retracted first."
    return ""
