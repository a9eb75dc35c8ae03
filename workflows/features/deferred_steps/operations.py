"""What people may do with a failed best-effort step of a COMPLETE workflow: run it again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from django.utils import timezone
from django.utils.text import capfirst

from workflows.definition import Step, definitions, titled_step
from workflows.effects import IN_DOUBT
from workflows.effects.reconcile import DOES_NOT_APPLY
from workflows.errors import NotAllowed
from workflows.models import Effect, Event, FollowUp, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import (
    FOLLOW_UP,
    lock_workflow,
    record_event,
    require,
    require_status,
    short_transaction,
)
from workflows.postgres.statements import fetch_all

if TYPE_CHECKING:
    from django.contrib.auth.models import User


# Kinds of events: a best-effort step of a COMPLETE workflow failed; and all that say how such a step ended.
FAILED_KINDS = (Event.Kind.BEST_EFFORT_FAILED, Event.Kind.FOLLOW_UP_GIVEN_UP)
TOLD_KINDS = (*FAILED_KINDS, Event.Kind.FOLLOWED_UP)
NOT_FAILED = "it has not failed, or was done since"
IS_DUE = "it is to be tried by itself"
DOUBTFUL = "whether its call has happened is not known: have it run again by itself"
UNKNOWN_STEP = "this release does not know its type, or the step"


@dataclass(frozen=True, slots=True)
class LeftUndone:
    """A best-effort step of a COMPLETE workflow that failed and has not run since.

    `name` is the step's name at the time, `effect` its call on the ledger, if any. `why_not` is a sentence why it
    cannot run again; empty if it can.
    """

    name: str
    step: Step
    effect: Effect | None
    failed_with: Event
    why_not: str


def follow_up(
    workflow_id: int, *, user: User, step: str, reason: str = "", seen: int | None = None, in_bulk: bool = False
) -> None:
    """Make a failed best-effort step due at once, with no failures counted. The workflow stays COMPLETE.

    `seen` is the last failure in the history that the user was shown: after a later one it is refused. `in_bulk` also
    refuses a step that has a next try, and one with a call in doubt: a person has to decide on that one alone.
    """
    require(user, FOLLOW_UP)
    with short_transaction():
        workflow, state = lock_workflow(workflow_id)
        require_status(workflow, state, Workflow.Status.COMPLETE, "a complete workflow has a step run again by itself")
        left = next((each for each in left_undone(workflow) if step == each.name), None)
        if left is None and _step_of(workflow, step) is None:
            raise NotAllowed(f"{capfirst(UNKNOWN_STEP)}.")
        if left is None:
            raise NotAllowed(f"{titled_step(workflow.workflow_type, step)} has not failed, or was done since.")
        if left.why_not:
            raise NotAllowed(left.why_not)
        if in_bulk and (why_not := _why_not_in_bulk(workflow, left)):
            raise NotAllowed(f"{capfirst(why_not)}.")
        if seen is not None and left.failed_with.pk > seen:
            raise NotAllowed("It has failed again since you looked at it.")
        _make_due(workflow, left.name, by=user.get_username())
        record_event(workflow_id, Event.Kind.FOLLOW_UP_ASKED, user, step=left.name, reason=reason)


def _step_of(workflow: Workflow, name: str) -> Step | None:
    definition = definitions().get(workflow.workflow_type)
    return definition.find_step(name) if definition else None


def _why_not_in_bulk(workflow: Workflow, left: LeftUndone) -> str:
    if left.step.once and left.effect and left.effect.state in IN_DOUBT:
        return DOUBTFUL
    is_planned = FollowUp.objects.filter(workflow=workflow.pk, step=left.name).exclude(due_at=None).exists()
    return IS_DUE if is_planned else ""


def count_left(ids: Collection[int], step: str) -> dict[str, int]:
    """How many of these workflows can have the step run again in bulk (under ""), and how many not, by reason.

    Follows the rules of `follow_up`. Deleted workflows are not counted.
    """
    known = {name: each for name, definition in definitions().items() if (each := definition.find_step(step))}
    names = sorted({step, *(name for each in known.values() for name in each.names)})
    found = fetch_all(
        """SELECT CASE WHEN w.emptied_at IS NOT NULL THEN %(emptied)s
                       WHEN w.status <> 'COMPLETE' THEN %(not_failed)s
                       WHEN w.workflow_type <> ALL (%(types)s) THEN %(unknown)s
                       WHEN last.kind IS NULL OR last.kind = 'followed_up' THEN %(not_failed)s
                       WHEN EXISTS (SELECT FROM workflows_effect c WHERE c.workflow_id = w.id AND NOT c.undo
                                       AND c.step = ANY (%(names)s) AND c.state = ANY (%(in_doubt)s)) THEN %(doubtful)s
                       WHEN EXISTS (SELECT FROM workflows_followup f WHERE f.workflow_id = w.id AND f.step = %(step)s
                                       AND f.due_at IS NOT NULL) THEN %(due)s
                       ELSE '' END AS why_not, count(*)
             FROM workflows_workflow w LEFT JOIN LATERAL (
                  SELECT e.kind FROM workflows_event e
                   WHERE e.workflow_id = w.id AND e.step = %(step)s AND e.kind = ANY (%(told)s)
                   ORDER BY e.id DESC LIMIT 1) last ON true
            WHERE w.id = ANY (%(ids)s) GROUP BY 1""",
        {
            "ids": [*ids],
            "step": step,
            "names": names,
            "types": [*known],
            "told": list(TOLD_KINDS),
            "in_doubt": list(IN_DOUBT),
            "emptied": "what it was sent was deleted",
            "not_failed": NOT_FAILED,
            "unknown": UNKNOWN_STEP,
            "doubtful": DOUBTFUL,
            "due": IS_DUE,
        },
    )
    return dict(found)


def _make_due(workflow: Workflow, step: str, *, by: str) -> None:
    """Make the step due with all counts at zero, whether it was given up, is due later, or was never deferred."""
    now = ClockTimestamp()
    anew = {"asked_by": by, "due_at": now, "created_at": now, "tries": 0, "failures": 0, "unavailable": 0}
    FollowUp.objects.bulk_create(
        [FollowUp(workflow=workflow, step=step, queue=workflow.queue, **anew)],
        update_conflicts=True,
        unique_fields=["workflow", "step"],
        update_fields=list(anew),
    )


def left_undone(workflow: Workflow) -> list[LeftUndone]:
    """The best-effort steps of a workflow that failed and have not run since, in the order of their failures."""
    definition = definitions().get(workflow.workflow_type)
    if workflow.status != Workflow.Status.COMPLETE or definition is None:
        return []
    failed: dict[str, Event] = {}
    for event in Event.objects.filter(workflow=workflow.pk, kind__in=TOLD_KINDS).order_by("id"):
        if event.kind == Event.Kind.FOLLOWED_UP:
            failed.pop(event.step, None)
        else:
            failed[event.step] = event
    if not failed:
        return []
    due = FollowUp.objects.filter(workflow=workflow.pk, due_at__lte=ClockTimestamp())
    are_due = set(due.values_list("step", flat=True))
    effects = list(Effect.objects.filter(workflow=workflow.pk, undo=False).order_by("id"))
    return [
        _left_undone(workflow, name, event, step, effects, is_due=name in are_due)
        for name, event in failed.items()
        if (step := definition.find_step(name))
    ]


def _left_undone(
    workflow: Workflow, name: str, failed_with: Event, step: Step, effects: list[Effect], *, is_due: bool
) -> LeftUndone:
    effect = next((each for each in reversed(effects) if each.step in step.names), None)
    titled, why_not = titled_step(workflow.workflow_type, name), ""
    if is_due:
        why_not = f"{titled} is due already: a worker takes it as soon as one is free."
    elif step.once and effect and effect.state in IN_DOUBT and not _can_be_told(step, effect):
        why_not = f"Whether the call of {titled} has happened cannot be told any more: it would be given up again."
    return LeftUndone(name, step, effect, failed_with, why_not)


def _can_be_told(step: Step, effect: Effect) -> bool:
    """Whether the step's lookup, or a repeat while its key is honoured, can answer (see `effects.reconcile`)."""
    honoured = timezone.now() - effect.first_begun_at < (step.key_ttl or timedelta(0))
    return bool(step.lookup) or (honoured and effect.error_code != DOES_NOT_APPLY)
