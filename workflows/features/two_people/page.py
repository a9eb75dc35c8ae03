"""A retry that charges again, and what a lead has confirmed alone, on the page of a workflow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workflows import operations
from workflows.console import links
from workflows.console.confirming import ConfirmForm
from workflows.console.verbs import Verb, read_once
from workflows.definition import titled_step
from workflows.extension import Note
from workflows.models import Confirmation, Workflow
from workflows.operations import two_people
from workflows.telling import consequences, words
from workflows.wording import of_person


def _open(row: Workflow) -> Confirmation | None:
    """What waits for a second person."""

    def read() -> Confirmation | None:
        rows = Confirmation.objects.open().filter(workflow=row.pk)
        return rows.select_related("asked_by", "task__wait", "task__workflow").first()

    return read_once(row, "to_confirm", read)


def _retry(row: Workflow) -> Confirmation | None:
    asked = _open(row) if row.status == Workflow.Status.FAILED else None
    return asked if asked and asked.decision == two_people.RETRIED else None


def _unreviewed(row: Workflow) -> list[Confirmation]:
    rows = Confirmation.objects.unreviewed
    return read_once(row, "to_review", lambda: list(rows().filter(workflow=row.pk).select_related("asked_by")))


def _of_confirming(row: Workflow) -> Iterator[str]:
    if asked := _retry(row):
        yield f"{asked.asked_by.get_username()} asks for it: {words.ended(asked.reason)}"
    yield from consequences.of_retry(row)


CONFIRM = Verb(
    slug="confirm_retry",
    main=True,
    label="Confirm the retry",
    permission=operations.RETRY,
    operation=operations.confirm_retry,
    applies=lambda row: _retry(row) is not None,
    why_not=lambda row, user: (
        (operations.why_not_retry(row.pk, user) or two_people.why_not_confirm(asked, user))
        if (asked := _retry(row))
        else ""
    ),
    consequences=_of_confirming,
    seen=(("seen", lambda row: [asked.pk] if (asked := _retry(row)) else []),),
    form=ConfirmForm,
    asks="Retry {}, and charge again",
    done="It will be tried again from the first step.",
)
DO_NOT = Verb(
    slug="do_not_confirm_retry",
    label="Do not confirm it",
    permission=operations.RETRY,
    operation=operations.do_not_confirm_retry,
    applies=lambda row: _retry(row) is not None,
    consequences=lambda row: [
        "The workflow stays failed, and nobody is charged. If you have asked for the retry yourself, it is withdrawn.",
        "Anybody who may can ask for it again.",
    ],
    seen=CONFIRM.seen,
    asks="Leave {} failed",
    done="It stays failed.",
)
REVIEW = Verb(
    slug="review_alone",
    label="Mark as reviewed",
    permission=(operations.CANCEL_PAID, operations.VIEW_AUDIT),
    operation=operations.review_alone,
    applies=lambda row: bool(_unreviewed(row)),
    why_not=lambda row, user: next((two_people.why_not_review(each, user) for each in _unreviewed(row)), ""),
    consequences=lambda row: [
        *(f"{_alone(each)} {words.ended(each.reason)}" for each in _unreviewed(row)[:1]),
        of_person("Compare it with what the other system says: was the patient charged once?"),
        "Your note stands in the history, and it leaves “For you”. Nothing else changes.",
    ],
    seen=(("seen", lambda row: [each.pk for each in _unreviewed(row)[:1]]),),
    asks="Mark what was confirmed alone in {} as reviewed",
    done="It is reviewed.",
)
VERBS = (CONFIRM, DO_NOT, REVIEW)


def foretold(row: Workflow) -> Iterator[str]:
    """What a retry does first, if it takes two people."""
    if two_people.is_needed_to_retry(row.pk):
        yield "Charging again takes two people: nothing happens until another user confirms it."


def notes(row: Workflow) -> Iterable[Note]:
    """What waits for a second person, and what a lead has confirmed alone."""
    if asked := _open(row):
        name, reason = asked.asked_by.get_username(), words.ended(asked.reason)
        if asked.decision == two_people.BY_HAND:
            titled = titled_step(row.workflow_type, row.current_step)
            text = f"{name} has said that {titled} was made by hand: {reason}"
            yield Note(f"{text} Nothing happens until another user confirms it.")
        elif asked.task is None:
            yield Note(f"{name} asks to retry it, which charges again: {reason} Another user has to confirm it.")
        else:
            said = words.SAID.get(operations.said(asked.task, asked).get("said", ""), "Go on")
            text = f"{name} has said: “{said}”. {reason} Nothing happens until another user confirms it."
            yield Note(text, url=links.task(asked.task.pk), label="The task")
    for each in _unreviewed(row):
        yield Note(f"{_alone(each)} Another user has to review it.")


def _alone(each: Confirmation) -> str:
    at = words.clock(each.decided_at)
    return f"{each.asked_by.get_username()} has confirmed their own answer, at {at}: nobody else could."
