"""What people may do with a task besides deciding it: retract the answer, assign it, ask a lead."""

from __future__ import annotations

from typing import Any

from workflows import operations
from workflows.console.verbs import KEPT, ReasonForm, Verb, colleague_field, reason_field
from workflows.definition import titled_step
from workflows.effects.reconcile import DOUBT_TASK_TYPE
from workflows.engine import undo_question
from workflows.models import ManualTask
from workflows.models.manual_task import able_to_decide
from workflows.operations import retracting
from workflows.operations.retracting import Again

RETRACT = Verb(
    slug="take_back",
    label="Retract the answer",
    asks="Retract the answer",
    permission=operations.MAY_DECIDE,
    operation=operations.retract,
    applies=lambda row: (
        row.state in (ManualTask.State.APPROVED, ManualTask.State.REJECTED) and not retracting.why_not(row)
    ),
    why_not=lambda row, user: operations.why_not_retract(row, user),
    consequences=lambda row: _once_retracted(row),
    done="It is retracted.",
)


class AssignForm(ReasonForm):
    """A colleague who may decide the task, and a note to them. No user is preselected."""

    reason = reason_field(f"If there is something to say. {KEPT}", label="Note", required=False)

    def __init__(self, *args: Any, row: ManualTask, **kwargs: Any) -> None:
        super().__init__(*args, row=row, **kwargs)
        others = able_to_decide(row).exclude(pk__in=[row.assignee_id] if row.assignee_id else [])
        self.fields = {"to": colleague_field(others, "Those who may decide it."), **self.fields}


ASSIGN = Verb(
    slug="assign",
    label="Assign to a colleague",
    asks="Assign it to a colleague",
    permission=(operations.ASSIGN, *operations.MAY_DECIDE),
    operation=operations.assign,
    applies=lambda row: False,  # the page shows it beside the buttons to claim and to release
    consequences=lambda row: [
        f"Now it is {f'with {row.assignee}' if row.assignee else 'unassigned'}.",
        "Your colleague finds it under “For you”, with your note in the workflow's history.",
        "Nobody else can decide it until it is unassigned.",
    ],
    seen=(("seen", lambda row: [row.assignee_id] if row.assignee_id else []),),
    form=AssignForm,
    done="It is assigned.",
)


ASK_LEAD = Verb(
    slug="ask_lead",
    label="Ask a lead",
    asks="Ask a lead to see to it",
    permission=(operations.ACKNOWLEDGE, *operations.MAY_DECIDE),
    operation=operations.ask_lead,
    applies=lambda row: False,  # as above
    consequences=lambda row: [
        "Support leads find it above the other tasks in “For you”, until somebody has it.",
        "Your note stands on its page, and in the workflow's history.",
    ],
    done="A lead is asked.",
)


KEEPS_ANSWER = "The answer stays in the history, with who took it back, and why."


def _once_retracted(row: ManualTask) -> list[str]:
    if why_not := retracting.why_not(row):
        return [f"Nothing: it cannot be retracted. {why_not}"]
    if row.task_type == undo_question.TASK_TYPE:
        return _once_decided_again(row)
    step = titled_step(row.workflow.workflow_type, retracting.step_of(row))
    in_doubt = f"Whether {step} happened" if row.task_type == DOUBT_TASK_TYPE else f"Whether {step} is reversed"
    asked = {
        Again.AT_ONCE: f"The workflow asks again at once: “{row.question}” is then another task.",
        Again.TO_UNDO: f"The workflow has failed, and is taken up again to reverse {step}: it asks that again at once.",
        Again.BY_A_RETRY: "The workflow has failed, and stays so: it asks again when somebody retries it.",
        Again.NOT: f"The workflow has been retried, and goes on: {step} counts as done, and is not called again.",
    }
    return [
        f"{in_doubt} is then unknown again. Nothing is called, and nothing reversed, by retracting the answer.",
        asked[retracting.when_asked_again(row)],
        KEEPS_ANSWER,
    ]


def _once_decided_again(row: ManualTask) -> list[str]:
    again = {
        Again.AT_ONCE: "The workflow asks again at once, by another task.",
        Again.TO_UNDO: "The workflow has failed, and is taken up again: it asks again at once, by another task.",
    }
    return [
        "Nothing is called, and nothing reversed, by retracting the answer.",
        again[retracting.when_asked_again(row)],
        "If nobody decides in time, it is then reversed.",
        KEEPS_ANSWER,
    ]
