"""The verb "Run again" for a failed best-effort step, on the page of a COMPLETE workflow."""

from __future__ import annotations

from typing import Any

from django import forms

from workflows.console.verbs import ReasonForm, Verb, reason_field
from workflows.effects import DONE, IN_DOUBT
from workflows.features.deferred_steps import operations, telling
from workflows.features.deferred_steps.operations import LeftUndone
from workflows.models import Workflow
from workflows.operations.guards import FOLLOW_UP
from workflows.telling.steps import step_of


class RunAgainForm(ReasonForm):
    """Asks for the step, if there are several."""

    step = forms.ChoiceField(
        widget=forms.RadioSelect,
        label="Step",
        error_messages={"required": "Say which step.", "invalid_choice": "It has not failed, or was done since."},
    )
    reason = reason_field(label="Reason (optional)", required=False)
    field_order = ("step", "reason")

    def __init__(self, *args: Any, row: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, row=row, **kwargs)
        # A sent form offers all steps: the operation refuses those that cannot run any more, and says why.
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
    return f"{begins}: {_what_of_its_call(left)} The last reason: {telling.error(row, left.failed_with)}"


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


RUN_AGAIN = Verb(
    slug="follow_up",
    main=True,
    label="Run again",
    permission=FOLLOW_UP,
    operation=operations.follow_up,
    applies=lambda row: bool(_can_be_run(row)),
    consequences=_consequences,
    done="A worker runs it as soon as one is free.",
    asks="Run a failed step again",
    form=RunAgainForm,
)
