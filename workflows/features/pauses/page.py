"""Pause and resume on the page of a workflow, and the filter of the list by paused ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from workflows import operations
from workflows.console.hold_form import HoldForm
from workflows.console.verbs import OptionalReasonForm, Verb, read_once
from workflows.console.workflow_filters import OfFeature
from workflows.extension import Said
from workflows.features.pauses import operations as pauses
from workflows.models import ManualTask, Pause, State, Wait, Workflow
from workflows.models.workflow import PAUSED
from workflows.telling import words


def _pause_of(row: Workflow) -> Pause | None:
    """The pause of a workflow, or the wish for one; None if it has none, or has finished."""
    if row.status != Workflow.Status.PENDING or row.compensating:
        return None
    found = read_once(row, "pause_of", lambda: list(Pause.objects.filter(workflow=row.pk)))
    return found[0] if found and (found[0].begun_at is None or row.waiting_for == PAUSED) else None


def _seen(row: Workflow) -> list[int]:
    return pauses.seen_of(_pause_of(row))


class PauseForm(HoldForm):
    what, done = "a workflow", "paused"
    minutes: Mapping[str, str] = {"60": "1 hour", "240": "4 hours", "1440": "1 day", "2880": "2 days"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["how_long"].label = "Pause it for"


def _of_pause(row: Workflow) -> Iterable[str]:
    if row.state == State.RUNNING:
        yield "A worker has it: what has begun finishes, and it is paused then. If that was all, it completes."
    else:
        yield "No worker takes it up until somebody resumes it. What it has done stays."
    yield "Nothing wakes it: no answer, message or other workflow. They are kept for when it is resumed."
    if Wait.objects.filter(workflow=row.pk, outcome="", superseded=False).exists():
        yield "What it waits for may run out of time meanwhile: its deadlines do not move."
    if ManualTask.objects.open().filter(workflow=row.pk).exists():
        yield "Its open tasks can still be decided."
    if row.children.filter(status=Workflow.Status.PENDING).exists():
        yield "The workflows that it has started go on."
    if row.expires_at:
        yield f"It fails if it is not complete by {words.until(row.expires_at)}: the pause has to end before that."
    yield "It does not go on by itself: when the time is over, it is overdue in “For you”."
    if pause := _pause_of(row):
        yield f"This takes the place of the pause of {pause.actor}, until {words.until(pause.until)}."


PAUSE = Verb(
    slug="pause",
    label="Pause this one",
    permission=operations.RUN_NOW,
    operation=pauses.pause,
    applies=lambda row: row.status == Workflow.Status.PENDING and not row.compensating,
    why_not=lambda row, user: (
        "A call of it is unclear: it can be paused once that is known."
        if row.state != State.RUNNING and pauses.is_in_doubt(row.pk)
        else ""
    ),
    consequences=_of_pause,
    seen=(("seen", _seen),),
    form=PauseForm,
    asks="Pause {}",
    named=lambda row: "again" if _pause_of(row) else "",
    done="It is paused.",
    rare=True,
)
RESUME = Verb(
    slug="resume",
    label="Resume",
    permission=operations.RUN_NOW,
    operation=pauses.resume,
    applies=lambda row: _pause_of(row) is not None,
    consequences=lambda row: [
        "A worker takes it up as soon as one is free, and it looks again at what it waits for."
        if row.waiting_for == PAUSED
        else "It is not paused yet, and will not be."
    ],
    seen=(("seen", _seen),),
    form=OptionalReasonForm,
    done="It is not paused any more.",
    main=True,
)
VERBS = (RESUME, PAUSE)


def said(row: Workflow) -> Said:
    """Who has paused it, until when and why; or who asks for that while a worker has it."""
    pause = _pause_of(row)
    if pause is None:
        return Said()
    until, why = words.until(pause.until), words.ended(pause.reason)
    if pause.begun_at is None:
        return Said(below=[f"{pause.actor} has it paused when this run has ended, until {until}: {why}"])
    if pause.until <= timezone.now():
        return Said(f"Paused by {pause.actor}: {why} The pause was to end at {until}: somebody has to resume it.")
    return Said(f"Paused by {pause.actor} until {until}: {why} It goes on when somebody resumes it.")


class PausedFilter(OfFeature):
    title = "pause"
    parameter_name = "paused"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [("yes", "Paused by a person"), ("overdue", "Paused, and over its time")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if self.value() is None:
            return queryset
        began = pauses.overdue() if self.value() == "overdue" else Pause.objects.filter(begun_at__isnull=False)
        return queryset.filter(pk__in=began.values("workflow"), status=Workflow.Status.PENDING, waiting_for=PAUSED)
