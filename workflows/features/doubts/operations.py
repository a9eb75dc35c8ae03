"""DOUBTS: a person has looked up a call in doubt, and wants to say whether it happened before the engine gives up.

Nothing is decided here. The wish is an event that names the call by its number: the worker that looks it up in vain the
next time asks the question “unclear call” instead of looking again later (`effects.reconcile`). The answer, its second
person and its retraction are those of that question. A lookup that finds something still comes first.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet

from workflows.definition import WorkflowDefinition, definitions
from workflows.effects import IN_DOUBT
from workflows.engine.undo_doubts import DEATHS_TASK_TYPE, LOSSES_TASK_TYPE, QUESTION_PREFIX
from workflows.errors import NotAllowed
from workflows.models import Effect, Event, ManualTask, Service, Wait, Workflow
from workflows.models.workflow import PAUSED
from workflows.operations.guards import (
    RESOLVE,
    lock_workflow,
    record_event,
    require,
    require_status,
    short_transaction,
)
from workflows.state import transitions

if TYPE_CHECKING:
    from django.contrib.auth.models import User

CHANGED = "It is not unclear any more, or is asked about by now: look at it again."


def ask(workflow_id: int, *, user: User, seen: Collection[int], reason: str = "") -> None:
    """Have people asked whether the calls in doubt happened, once they are looked up in vain once more.

    `seen` are the numbers of the calls that the user was shown. A question about the failed reversal of one of them is
    withdrawn: this one takes its place, and a call that happened is then reversed.
    """
    require(user, RESOLVE)
    with short_transaction():
        workflow, state = lock_workflow(workflow_id)
        require_status(workflow, state, Workflow.Status.PENDING, "a workflow under way finds out about its calls")
        calls = in_doubt(workflow)
        if not calls or [each.call_number for each in calls] != list(seen):
            raise NotAllowed(CHANGED)
        if refusal := why_not(workflow):
            raise NotAllowed(refusal)
        for call in calls:
            _withdraw(workflow, call, user)
            told: dict[str, Any] = {"step": call.step, "call": call.call_number}
            record_event(workflow_id, Event.Kind.DOUBT_ASKED, user, reason=reason, **told)
        transitions.make_due(workflow_id)


def _withdraw(workflow: Workflow, call: Effect, user: User) -> None:
    """Withdraw the question about a failed reversal of the call, and count its failures anew. An answer counts."""
    for asked in standing(workflow, call, QUESTION_PREFIX):
        free = ManualTask.objects.filter(wait=asked, state=ManualTask.State.OPEN).free_for(user)
        if not free.update(state=ManualTask.State.CLOSED):
            raise NotAllowed("Somebody has claimed or answered the question of its failed reversal.")
        Wait.objects.filter(pk=asked.pk).update(superseded=True)
    Effect.objects.filter(pk=call.pk).update(undo_failures=0, undo_unavailable=0)


def why_not(workflow: Workflow) -> str:
    """Why nobody can be asked now about a workflow's calls in doubt; empty if somebody can."""
    if workflow.waiting_for == PAUSED:
        return "It is paused: resume it first."
    if Service.objects.filter(name=workflow.parked_on).exclude(step="").exists():
        return "It waits for a mend, and its call is looked up after that."
    return ""


def in_doubt(workflow: Workflow) -> list[Effect]:
    """The calls in doubt that only a lookup can find out now, oldest first: people can be asked instead."""
    definition = definitions().get(workflow.workflow_type)
    if definition is None:
        return []
    calls = Effect.objects.filter(workflow=workflow.pk, undo=False, state__in=IN_DOUBT, call_number__gt=0)
    # The lookups of some have killed the workers.
    found = calls.exclude(error_code__in=[DEATHS_TASK_TYPE, LOSSES_TASK_TYPE]).order_by("call_number")
    return [each for each in found if _is_looked_up(definition, workflow, each)]


def _is_looked_up(definition: WorkflowDefinition, workflow: Workflow, call: Effect) -> bool:
    """Whether a lookup, and no question yet, decides about the call. That of a best-effort step is worth nobody's time,
    and in a reversal only what has an undo is looked up.
    """
    step = definition.find_step(call.step)
    if step is None or not step.lookup or not (step.undo if workflow.compensating else not step.best_effort):
        return False
    return not standing(workflow, call, "effect:").exists()


def standing(workflow: Workflow, call: Effect, prefix: str) -> QuerySet[Wait]:
    """The wait for an answer about the call, or about its reversal; none if it was never asked, or is withdrawn."""
    return Wait.objects.filter(workflow=workflow.pk, name=f"{prefix}{call.step}:{call.generation}", superseded=False)
