"""What a workflow's page says of others with the same business key, and the verb "Not a duplicate"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workflows import operations
from workflows.console import links
from workflows.console.dialogues import Dialogue
from workflows.console.verbs import Verb
from workflows.definition import wording_of_type
from workflows.errors import DUPLICATES
from workflows.extension import Note
from workflows.features.business_key import duplicates
from workflows.features.business_key.duplicates import Other
from workflows.features.business_key.holders import HOLDER
from workflows.features.business_key.operations import not_a_duplicate, why_not_say_no_duplicate
from workflows.models import Workflow
from workflows.wording import of_person


def notes(workflow: Workflow, others: Sequence[Other]) -> Iterator[Note]:
    """A note for each of the other workflows, with a link to its page."""
    same = wording_of_type(workflow.workflow_type).same_business
    is_second = duplicates.is_one(workflow) or duplicates.is_asked_about(workflow)
    for each in others:
        told = _line(workflow, each, same, is_second=is_second)
        yield Note(told, links.workflow(each.workflow_id), f"Workflow {each.workflow_id}")


def _line(workflow: Workflow, other: Other, same: str, *, is_second: bool) -> str:
    if other.role == HOLDER and is_second:
        differ = ", ".join(duplicates.differing_from(workflow, other.workflow_id))
        return f"The first submission for {same}{f' (this one differs in {differ})' if differ else ''}:"
    if other.is_waiting:
        return f"A second submission for {same}, which waits for the first to end:"
    if other.status == Workflow.Status.FAILED and other.error_code in DUPLICATES:
        return f"A second submission for {same}, which ended as a duplicate:"
    return f"Another submission for {same}:"


def _consequences(row: Workflow) -> Iterator[str]:
    first = next((each for each in duplicates.others_of(row) if each.role == HOLDER), None)
    yield "A worker takes it up at once, and runs it beside the others, whatever becomes of them."
    if first:
        yield f"Look at workflow {first.workflow_id} first: what it does, or has done, this one does once more."
    yield of_person("A patient who sent both is charged a second time.")


NOT_A_DUPLICATE = Verb(
    slug="not_a_duplicate",
    main=True,
    label="Not a duplicate",
    permission=operations.RETRY,
    operation=not_a_duplicate,
    applies=duplicates.is_one,
    why_not=lambda row, user: why_not_say_no_duplicate(user),
    consequences=_consequences,
    done="It goes on.",
    dangerous=True,
)

POSSIBLE_DUPLICATE = Dialogue(
    *("Carry it out as well", "Do not carry it out"),
    of_person(
        "Carried out, it runs beside the other one, and the patient may be charged a second time. Else it ends as a "
        "duplicate, uncharged; while the other one is under way it waits, and takes its place if that one fails."
    ),
    expired="Then it ends uncharged, and “For you” lists it.",
    reason="Required.",
    needs_reason=True,
)
