"""Done by hand, on the page of a workflow: the forms of both people, what will happen, and how it is retracted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms

from workflows import operations
from workflows.charges import moves_money
from workflows.console.answer_form import AnswerForm
from workflows.console.confirming import ConfirmForm
from workflows.console.verbs import ReasonForm, Verb, read_once
from workflows.definition import titled_step, wording_of_type
from workflows.features.by_hand import operations as by_hand
from workflows.features.by_hand.operations import Call
from workflows.models import Confirmation, Workflow
from workflows.operations import answers, two_people
from workflows.telling import consequences, words
from workflows.wording import of_person


def _call(row: Workflow) -> Call | None:
    return read_once(row, "call_by_hand", lambda: by_hand.failed_call(row))


def _asked(row: Workflow) -> Confirmation | None:
    """What waits for a second person."""
    is_failed = row.status == Workflow.Status.FAILED

    def read() -> Confirmation | None:
        return two_people.open_of(row.pk, decision=two_people.BY_HAND) if is_failed else None

    return read_once(row, "said_by_hand", read)


def _made(row: Workflow) -> list[int]:
    """The call that stands as made by hand, and can be retracted."""
    is_over = row.status == Workflow.Status.COMPLETE
    return read_once(row, "made_by_hand", lambda: [] if is_over else by_hand.said_by_hand(row)[:1])


class SayForm(ReasonForm):
    """The reference, the fields that the step returns, and a reason. They come before what will happen."""

    comes_first = True
    reference = forms.CharField(
        max_length=by_hand.LONGEST_REFERENCE,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text=of_person(
            "By what people find it in the other system: the number of a receipt, say. It stands in the history, and "
            "no step reads it. No patient data, please."
        ),
    )
    field_order = ("reference", "reason")

    def __init__(self, data: Any = None, *, row: Workflow) -> None:
        super().__init__(data, row=row)
        call = _call(row)
        model = answers.result_model(call.definition, call.step) if call else None
        wording = wording_of_type(row.workflow_type)
        self.answer = AnswerForm(model, data, wording=wording) if model else None
        charge = self.answer and wording.money and self.answer.fields.get(wording.money.reference)
        if charge:
            own = "The charge's own number, with which the steps go on and a refund looks for it. If there is only one"
            charge.help_text = f"{own} number, it is the reference, too. {charge.help_text}".strip()

    def visible_fields(self) -> list[forms.BoundField]:
        reference, *others = super().visible_fields()
        return [reference, *(self.answer.visible_fields() if self.answer else ()), *others]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        cleaned["result"] = {}
        if self.answer and not self.answer.is_valid():
            self.add_error(None, self.answer.non_field_errors() or "Look at the fields above.")
        elif self.answer:
            cleaned["result"] = self.answer.answer
        return cleaned


def _of_saying(row: Workflow) -> Iterator[str]:
    if call := _call(row):
        yield f"Nothing is called: {_titled(row, call)} goes on record as made by hand, by you, under this reference."
        yield "Say it only when it is done, and look first whether our own call did not go through after all."
        if moves_money(call.definition, call.step.name):
            yield "The sum is not asked for: it is that of the submission. If another was paid, do not say it here."
        if by_hand.is_for_two(row):
            yield "It takes two people: nothing happens until another user confirms it."
        yield from _of_going_on(row, call)


def _of_confirming(row: Workflow) -> Iterator[str]:
    if (asked := _asked(row)) and (call := _call(row)):
        said = asked.answer or {}
        shown = answers.shown(row.pk, result=said.get("result"), reference=said.get("reference", ""))
        fields = words.answered(shown, wording_of_type(row.workflow_type))
        name, reason = asked.asked_by.get_username(), words.ended(asked.reason)
        yield f"{name} has said that {_titled(row, call)} was made by hand: {fields}. {reason}"
        yield "Look yourself, where it can be seen, before you confirm it: you are the last who can see a mistake."
        yield from _of_going_on(row, call)


def _of_going_on(row: Workflow, call: Call) -> Iterator[str]:
    yield from consequences.of_retry(row, by_hand=call.step.names)
    if call.step.undo:
        yield (
            "If the workflow fails later, or is cancelled, a person is asked to reverse it by hand. Onramp reverses it "
            "by itself only where it can look it up, and finds it exactly as it is said here."
        )


def _titled(row: Workflow, call: Call) -> str:
    return titled_step(row.workflow_type, call.step.name)


def _why_not_confirm(row: Workflow, user: Any) -> str:
    return by_hand.why_not_confirm(row, asked, user) if (asked := _asked(row)) else two_people.GONE


SAY = Verb(
    slug="by_hand",
    label="Done by hand",
    permission=operations.RESOLVE,
    operation=by_hand.say,
    applies=lambda row: row.status == Workflow.Status.FAILED and _call(row) is not None and _asked(row) is None,
    why_not=by_hand.why_not_say,
    consequences=_of_saying,
    seen=(("seen", operations.ended_at),),
    form=SayForm,
    asks="Say that the failed call of {} was made by hand",
    done="It is on record, and the workflow starts again.",
)
CONFIRM = Verb(
    slug="confirm_by_hand",
    main=True,
    label="Confirm that it was done by hand",
    permission=operations.RESOLVE,
    operation=by_hand.confirm,
    applies=lambda row: _asked(row) is not None,
    why_not=_why_not_confirm,
    consequences=_of_confirming,
    seen=(("seen", lambda row: [asked.pk] if (asked := _asked(row)) else []),),
    form=ConfirmForm,
    asks="Confirm what was done by hand in {}",
    done="It is on record, and the workflow starts again.",
)
DO_NOT = Verb(
    slug="do_not_confirm_by_hand",
    label="Do not confirm it",
    permission=operations.RESOLVE,
    operation=by_hand.do_not_confirm,
    applies=lambda row: _asked(row) is not None,
    consequences=lambda row: [
        "The workflow stays failed, and nothing is on record as made by hand. If you have said it, it is withdrawn.",
        "If it was done all the same, a retry would do it a second time: find out first.",
    ],
    seen=CONFIRM.seen,
    asks="Do not confirm what was done by hand in {}",
    done="It stays failed.",
)
RETRACT = Verb(
    slug="not_by_hand",
    label="Not done by hand after all",
    permission=operations.RESOLVE,
    operation=by_hand.retract,
    applies=lambda row: bool(_made(row)),
    why_not=lambda row, user: by_hand.why_not_retract(row),
    consequences=lambda row: [
        "The call is on record as not made. Nothing is called now; a retry makes it.",
        "The workflow fails again with its first error, and what it has done is reversed where it can be.",
    ],
    seen=(("seen", _made),),
    asks="Retract what was done by hand in {}",
    done="It is retracted.",
    rare=True,
)
VERBS = (SAY, CONFIRM, DO_NOT, RETRACT)
