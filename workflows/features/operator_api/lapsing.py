"""Proposals that nobody has decided in time, or that nobody can decide any more: maintenance ends them."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Q

from workflows.models import Event, ManualTask, Proposal, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.signals.waking import Slice
from workflows.state import history

Verb, State = Proposal.Verb, Proposal.State


def _gone_on() -> Q:
    """Those whose workflow has ended, or was retried, since, and those whose task was decided since.

    And those behind which there is no key or no person any more: they would keep others from proposing the same.
    """
    workflow = Workflow.objects.filter(pk=OuterRef("workflow"))
    task = ManualTask.objects.filter(pk=OuterRef("row"), state=ManualTask.State.OPEN)
    failed, pending = workflow.filter(status=Workflow.Status.FAILED), workflow.filter(status=Workflow.Status.PENDING)
    return (
        Q(verb=Verb.RETRY) & ~Q(Exists(failed))
        | Q(verb=Verb.CANCEL) & ~Q(Exists(pending))
        | Q(verb__in=(Verb.APPROVE, Verb.REJECT)) & ~Q(Exists(task))
        | Q(api_key__revoked_at__isnull=False)
        | Q(asked_by__is_active=False)
    )


def lapse(after: int = 0) -> Slice:
    """End these proposals. Only their time is told in the history: that the rest went on stands there anyway."""
    over = Q(lapses_at__lte=ClockTimestamp())
    rows = Proposal.objects.filter(over | _gone_on(), state=State.ASKED).select_related("asked_by", "api_key")
    rows = rows.defer("asked_by__password").annotate(is_over=Exists(Proposal.objects.filter(over, pk=OuterRef("pk"))))
    ended: list[Any] = list(rows.select_for_update(of=("self",), skip_locked=True).order_by("asked_at")[:100])
    for each in ended:
        state = State.LAPSED if each.is_over else State.STALE
        Proposal.objects.filter(pk=each.pk).update(state=state)
        if each.is_over and each.workflow_id:
            told: dict[str, Any] = {
                "verb": each.verb,
                "key": each.api_key.name,
                "proposed_by": each.asked_by.get_username(),
            }
            history.record(each.workflow_id, Event.Kind.PROPOSAL_LAPSED, actor="a worker", reason=each.reason, **told)
    return Slice(len(ended))
