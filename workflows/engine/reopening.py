"""REOPEN: a workflow that has failed, or is about to be undone, starts again from its first step."""

from __future__ import annotations

from django.db.models import Q

from workflows.definition import definitions
from workflows.engine import undo_doubts, undo_question
from workflows.models import Effect, ManualTask, Wait, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.state import transitions

# Each compensation asks its own questions.
_OF_COMPENSATIONS = (undo_doubts.UNDO_TASK_TYPE, undo_question.TASK_TYPE)


def reopen(*workflows: Workflow, begun: bool = True) -> None:
    """Make workflows of one type due at once; their `expires_after` starts again, and so do waits that are over.

    The caller's transaction holds the row locks. A call that a person left as it is counts as done, or its outcome is
    looked up; it is not made again. If not `begun`, a workflow queues behind those that have started.
    """
    definition, ids = definitions().get(workflows[0].workflow_type), [each.pk for each in workflows]
    expires_after = definition.expires_after if definition else None
    transitions.reopen(*ids, expires_after=expires_after, begun=begun)
    kept = Effect.objects.filter(workflow__in=ids, state=Effect.State.KEPT)
    kept.filter(result__isnull=True).update(state=Effect.State.UNKNOWN, undo_failures=0, undo_unavailable=0)
    kept.update(state=Effect.State.DONE, undo_failures=0, undo_unavailable=0)
    _supersede_waits(ids)


def _supersede_waits(ids: list[int]) -> None:
    """Supersede the waits that are over or closed (such as the one that failed it): the retry starts them again.

    The others keep their answers. A wait for a time continues from its start. The wait for children is made again,
    because they may have been retried since.
    """
    not_open = [ManualTask.State.EXPIRED, ManualTask.State.CLOSED]
    closed = ManualTask.objects.filter(workflow__in=ids, state__in=not_open).values("wait")
    asked = ManualTask.objects.filter(workflow__in=ids, task_type__in=_OF_COMPENSATIONS).values("wait")
    over = Q(kind=Wait.Kind.SIGNAL, outcome="", deadline__lte=ClockTimestamp())
    joins = Q(kind=Wait.Kind.CHILDREN) & ~Q(outcome="expired")
    Wait.objects.filter(workflow__in=ids).filter(over | Q(outcome="", pk__in=closed) | Q(pk__in=asked) | joins).update(
        superseded=True
    )
