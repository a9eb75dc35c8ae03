"""Best-effort steps that failed, on the page of a COMPLETE workflow: what becomes of them, and "Run again"."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils import timezone

from workflows import operations
from workflows.console import words
from workflows.console.base import ReasonForm, Verb, reason_field
from workflows.console.steps import step_of, told_error
from workflows.definition import wording_of_type
from workflows.effects import DONE, IN_DOUBT
from workflows.models import Event, FollowUp, Workflow
from workflows.operations import LeftUndone

# --- Run again ----------------------------------------------------------------------------------


class RunAgainForm(ReasonForm):
    """Asks which step, if there are several."""

    step = forms.ChoiceField(
        widget=forms.RadioSelect,
        label="Step",
        error_messages={"required": "Say which step.", "invalid_choice": "It has not failed, or was done since."},
    )
    reason = reason_field(label="Reason (optional)", required=False)
    field_order = ("step", "reason")

    def __init__(self, *args: Any, row: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, row=row, **kwargs)
        # The operation refuses what cannot be run any more, and says why.
        names = [each.name for each in operations.left_undone(row) if self.is_bound or not each.why_not]
        step: Any = self.fields["step"]
        step.choices = [(name, step_of(row, name)) for name in names]
        if len(names) == 1:
            self.initial["step"] = names[0]


def _can_be_run(row: Any) -> list[LeftUndone]:
    return [each for each in operations.left_undone(row) if not each.why_not]


def _consequences(row: Workflow) -> list[str]:
    return [
        *(_what_happens(row, each) for each in _can_be_run(row)),
        "No other step is run, and the workflow stays complete whatever comes of it.",
        "If the step fails again for a reason that passes, it is tried later, as its policy says. After that, or if it "
        "is refused, it is given up.",
    ]


def _what_happens(row: Workflow, left: LeftUndone) -> str:
    begins = f"“{step_of(row, left.name)}” is run as soon as a worker is free"
    return f"{begins}: {_what_of_its_call(left)} The last reason: {_error(row, left.failed_with)}"


def _what_of_its_call(left: LeftUndone) -> str:
    step, effect = left.step, left.effect
    if not step.once:
        return "whatever it calls is called again."
    if effect and effect.state == DONE:
        return "its call is on record as done, and is not made again."
    if effect and effect.state in IN_DOUBT:
        if step.lookup:
            return "whether its call has happened is not known, and is looked up first."
        return "whether its call has happened is not known, so it is repeated under its old key, and counts once."
    return "its call, which has not happened, is made."


def _error(row: Workflow, event: Event) -> str:
    error, _ = told_error(wording_of_type(row.workflow_type), event.detail)
    return words.ended(error or "no error was recorded")


RUN_AGAIN = Verb(
    slug="follow_up",
    label="Run again",
    permission=operations.FOLLOW_UP,
    operation=operations.follow_up,
    applies=lambda row: bool(_can_be_run(row)),
    consequences=_consequences,
    done="A worker runs it as soon as one is free.",
    asks="Run a failed step again",
    form=RunAgainForm,
)

# --- What becomes of them ------------------------------------------------------------------------


def lines(workflow: Workflow, *, is_running: bool) -> list[str]:
    """A line for each deferred step: when it is due, how often it has failed, why it was given up."""
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
        why = f" Last for this: {_error(workflow, given_up)}" if given_up else ""
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
    """How often it has failed since it was deferred, or since somebody had it run again."""
    failures = row.failures + row.unavailable
    failed = f" It has failed {words.times(failures)} since." if failures else ""
    died = f" Workers have started it {words.times(row.tries)} and never finished." if row.tries else ""
    return failed + died
