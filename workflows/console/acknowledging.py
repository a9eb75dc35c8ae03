"""Acknowledge: somebody has dealt with a failure; its page shows who, and why."""

from __future__ import annotations

from collections.abc import Iterator

from workflows import operations
from workflows.console.verbs import KEPT, ReasonForm, Verb, read_once, reason_field
from workflows.definition import wording_of_type
from workflows.extension import installed
from workflows.models import Workflow
from workflows.operations import two_people
from workflows.telling import words
from workflows.wording import is_explained, words_for_code


class NoteForm(ReasonForm):
    reason = reason_field(f"What was done about it. {KEPT}", label="Note")


def _consequences(row: Workflow) -> Iterator[str]:
    yield "It leaves the list of what needs a person."
    if by := claimed_by(row):
        yield f"{by} says that its call was made by hand. That waits for another user all the same."
    for each in installed():
        yield from each.foretells("acknowledge", row)
    if row.status == Workflow.Status.FAILED:
        yield "It stays failed. Nothing is called, and nothing is refunded or reversed."
        yield "It can still be retried. If it fails again, it needs a person again."
    else:
        yield "What was given up stays undone, and the workflow stays complete. Nothing is called."
        yield "The step can still be run again. If it is given up again, it needs a person again."


def is_the_next(row: Workflow) -> bool:
    """Whether a retry alone does not help, because the failure is explained, and no engineer has to look at it."""
    wording = wording_of_type(row.workflow_type)
    return (
        row.status == Workflow.Status.FAILED
        and is_explained(wording, row.last_error_code)
        and not words_for_code(wording, row.last_error_code).engineer
        and not claimed_by(row)
    )


def claimed_by(row: Workflow) -> str:
    """Who says that the call of a failed workflow was made by hand, while nobody has confirmed it; or empty."""
    is_failed = row.status == Workflow.Status.FAILED
    return read_once(row, "claimed_by", lambda: two_people.who_said_by_hand(row.pk)) if is_failed else ""


def leaves_a_retry(row: Workflow) -> bool:
    """Whether a retry most likely comes next: it may help, and nobody has dealt with the failure otherwise."""
    explained = is_explained(wording_of_type(row.workflow_type), row.last_error_code)
    return not explained and row.acknowledged_failure != row.completed_at


ACKNOWLEDGE = Verb(
    slug="acknowledge",
    main=is_the_next,
    label="Acknowledge",
    permission=operations.ACKNOWLEDGE,
    operation=operations.acknowledge,
    applies=lambda row: bool(_left(row)),
    consequences=_consequences,
    done="It is acknowledged.",
    seen=(("seen", operations.failures_left),),
    form=NoteForm,
)


def _left(row: Workflow) -> list[int]:
    return read_once(row, "failures_left", lambda: operations.failures_left(row))


def line(workflow: Workflow) -> str:
    """Who has acknowledged the failure, when, and with which note; empty while it still needs somebody."""
    if workflow.status == Workflow.Status.PENDING or _left(workflow):
        return ""
    if not (said := operations.acknowledgement(workflow)):
        return ""
    return f"Acknowledged by {said.actor} at {words.clock(said.at)}: {said.detail.get('reason', '')}"
