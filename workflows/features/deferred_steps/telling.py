"""The failed best-effort steps of a COMPLETE workflow, in words."""

from __future__ import annotations

from django.utils import timezone

from workflows.definition import wording_of_type
from workflows.models import Event, FollowUp, Workflow
from workflows.telling import words
from workflows.telling.steps import step_of, told_error


def lines(workflow: Workflow, *, is_running: bool) -> list[str]:
    """A sentence for each deferred step: when it is due, how often it failed, why it was given up."""
    rows = list(FollowUp.objects.filter(workflow=workflow).order_by("id"))
    if not rows:
        return []
    events = Event.objects.filter(workflow=workflow, kind=Event.Kind.FOLLOW_UP_GIVEN_UP).order_by("id")
    given_up = {event.step: event for event in events}
    return [_line(workflow, each, given_up.get(each.step), is_running=is_running) for each in rows]


def _line(workflow: Workflow, row: FollowUp, given_up: Event | None, *, is_running: bool) -> str:
    step = f"“{step_of(workflow, row.step)}”"
    asked = f"{row.asked_by} has asked for it, " if row.asked_by else ""
    failed = "" if is_running and row.tries else _failed(row)
    if row.due_at is None:
        why = f" Last for this: {error(workflow, given_up)}" if given_up else ""
        is_left = row.acknowledged_failure != row.created_at
        return f"{'Still to be done' if is_left else 'Not done'}: {step}, given up.{failed}{why}"
    if is_running and row.tries:
        when = "a worker is at it"
    elif row.due_at <= timezone.now():
        when = f"due since {words.clock(row.due_at)}: a worker takes it as soon as one is free"
    else:
        when = f"the next try is at {words.clock(row.due_at)}"
    return f"Still to be done: {step}, {asked}{when}.{failed}"


def _failed(row: FollowUp) -> str:
    """How often it has failed since it was deferred, or since somebody made it run again."""
    failures = row.failures + row.unavailable
    failed = f" It has failed {words.times(failures)} since." if failures else ""
    died = f" Workers have started it {words.times(row.tries)} and never finished." if row.tries else ""
    return failed + died


def error(row: Workflow, event: Event) -> str:
    """Why a step failed, as a sentence with a full stop."""
    error, _ = told_error(wording_of_type(row.workflow_type), event.detail)
    return words.ended(error or "no error was recorded")
