"""On the page of a workflow: somebody has looked up its call in doubt, and wants to say whether it happened."""

from __future__ import annotations

from collections.abc import Iterator

from workflows import operations
from workflows.console.answer_form import SAY_WHETHER
from workflows.console.verbs import OptionalReasonForm, Verb, read_once
from workflows.definition import titled_step
from workflows.engine.undo_doubts import QUESTION_PREFIX
from workflows.extension import Said
from workflows.features.doubts import operations as doubts
from workflows.models import Effect, State, Workflow


def _calls(row: Workflow) -> list[Effect]:
    """The calls that can be asked about. What a worker is making is no doubt yet."""
    may_have_some = row.status == Workflow.Status.PENDING and row.state != State.RUNNING
    return read_once(row, "calls_in_doubt", lambda: doubts.in_doubt(row)) if may_have_some else []


def _titles(row: Workflow) -> str:
    return ", ".join(titled_step(row.workflow_type, each.step) for each in _calls(row))


def _of_asking(row: Workflow) -> Iterator[str]:
    yield f"A worker looks it up once more, at once: {_titles(row)}. What it finds, or does not find there, counts."
    yield "If it cannot be looked up, the question “Unclear call” opens on this page. You or a colleague answers it."
    yield "Until then nothing is called or reversed. It is still looked up every hour, and does not fail for that."
    if any(doubts.standing(row, each, QUESTION_PREFIX).exists() for each in _calls(row)):
        yield "That takes the place of the question of its failed reversal."
        yield "If you answer that it happened, Onramp reverses it. If it did not, there is nothing to reverse."
        yield "What you have reversed there yourself, you answer where it is asked now: “It was reversed by hand”."


ASK = Verb(
    slug="say_whether",
    label=SAY_WHETHER,
    permission=operations.RESOLVE,
    operation=doubts.ask,
    applies=lambda row: bool(_calls(row)),
    why_not=lambda row, user: doubts.why_not(row),
    consequences=_of_asking,
    seen=(("seen", lambda row: [each.call_number or 0 for each in _calls(row)]),),
    form=OptionalReasonForm,
    asks="Say whether the unclear call of {} happened",
    done="It is looked up once more. If that fails, the question opens here in a moment.",
)
VERBS = (ASK,)


def said(row: Workflow) -> Said:
    """That its call is looked up, and who need not wait for that."""
    if not _calls(row):
        return Said()
    told = f"Whether {_titles(row)} happened is not known, and is looked up again and again."
    return Said(below=[f"{told} A lead or an engineer who has seen it in its service need not wait: “{SAY_WHETHER}”."])
