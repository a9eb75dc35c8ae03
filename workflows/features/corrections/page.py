"""Correct and retry: the forms of both people, their consequences, and the notes on a workflow's page."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from django.contrib.auth.models import User

from workflows import operations
from workflows.console import acknowledging
from workflows.console.answer_fields import field_of
from workflows.console.verbs import KEPT, ReasonForm, Verb, read_once, reason_field
from workflows.definition import definitions, value_at, wording_of_type
from workflows.features.corrections import operations as corrections
from workflows.features.retention.content import DELETED
from workflows.models import Correction, Workflow
from workflows.telling import consequences, words
from workflows.telling.history import in_words
from workflows.wording import of_person, words_for_code


class _ValuesForm(ReasonForm):
    """New values by field, in `values`. Fields that are left empty are not included."""

    comes_first = True  # before what will happen

    def add(self, names: Collection[str], *, required: bool) -> None:
        definition = definitions()[self.row.workflow_type]
        for name in names:
            info = definition.correctable.find(name) if definition.correctable else None
            assert info is not None  # the definition checks this
            field = field_of(info)
            field.required = field.widget.is_required = required
            field.initial = None
            field.label = words.label_of_field(definition, name)
            field.help_text = f"Was: {corrections.masked(definition, name, value_at(self.row.payload, name))}."
            self.fields[name] = field
        self.names = names
        self.order_fields([*names, "reason"])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        read = definitions()[self.row.workflow_type]
        values = {name: corrections.as_read(read, name, cleaned.pop(name, None)) for name in self.names}
        cleaned["values"] = {name: value for name, value in values.items() if value not in (None, "")}
        return cleaned


class CorrectForm(_ValuesForm):
    def __init__(self, *args: Any, row: Workflow, **kwargs: Any) -> None:
        super().__init__(*args, row=row, **kwargs)
        correctable = corrections.correctable_of(row)
        wrong = {each.field: each.wrong for each in words.told_faults(row)}
        self.add(sorted(correctable.fields if correctable else (), key=lambda name: name not in wrong), required=False)
        for name in self.names:
            field = self.fields[name]
            field.help_text += " Leave it empty to keep that."
            if name in wrong:
                field.help_text = f"Missing or wrong: {wrong[name]} {field.help_text}"
                if not self.is_bound:  # then what is wrong with what was typed comes first
                    field.widget.attrs["aria-invalid"] = "true"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not self.errors:
            for field, fault in corrections.faults(self.row, cleaned["values"]).items():
                self.add_error(field or None, fault)
        return cleaned


class ApproveForm(_ValuesForm):
    reason = reason_field(f"If there is something to say. {KEPT}", required=False)

    def __init__(self, *args: Any, row: Workflow, **kwargs: Any) -> None:
        super().__init__(*args, row=row, **kwargs)
        told = asked.told if (asked := _asked(row)) else ()
        self.add([each["field"] for each in told], required=True)
        for each in told:
            self.fields[each["field"]].help_text += f" Asked for: {each['is']}."


def _asked(row: Workflow) -> Correction | None:
    """The open correction."""
    is_failed = row.status == Workflow.Status.FAILED
    return read_once(row, "asked", lambda: corrections.open_correction(row.pk) if is_failed else None)


def _ids(row: Workflow) -> list[int]:
    return [asked.pk] if (asked := _asked(row)) else []


def _of_asking(row: Workflow) -> Iterator[str]:
    correctable, wrong = corrections.correctable_of(row), words.told_faults(row)
    fields = correctable.fields if correctable else ()
    yield of_person(
        "Nothing is changed before another user approves it, who types the new values again, as the patient says them."
    )
    if others := [label for name, label, _ in wrong if name not in fields]:
        yield f"Missing or wrong, too, and not to be corrected here: {', '.join(others)}."
    yield from _of_change(row, fields)


def _of_approval(row: Workflow) -> Iterator[str]:
    if asked := _asked(row):
        yield f"{_in_words(asked)} {words.ended(asked.reason)}"
        yield of_person("Type the new values as you know them, from the patient or from what the patient has sent.")
        yield from _of_change(row, [each["field"] for each in asked.told])


def _of_change(row: Workflow, fields: Collection[str]) -> Iterator[str]:
    """What keeps the old values, and what the retry does."""
    for step, labels in corrections.done_with_the_old(row, fields).items():
        yield (
            f"{step} was done with what was sent ({', '.join(labels)}), and is not done again: there the old value "
            "stays until somebody changes it by hand."
        )
    yield from consequences.of_retry(row, corrected=True)


CORRECT = Verb(
    slug="correct",
    label="Correct and retry",
    permission=operations.CORRECT,
    operation=corrections.ask,
    applies=lambda row: corrections.correctable_of(row) is not None and _asked(row) is None,
    why_not=corrections.why_not_correct,
    consequences=_of_asking,
    seen=(("seen", operations.ended_at),),
    form=CorrectForm,
    asks="Ask to correct {}",
    done="It is asked for.",
)
APPROVE = Verb(
    slug="approve_correction",
    main=True,
    label="Approve the correction",
    permission=operations.CORRECT,
    operation=corrections.approve,
    applies=lambda row: _asked(row) is not None,
    why_not=lambda row, user: corrections.why_not_approve(asked, user) if (asked := _asked(row)) else "",
    consequences=_of_approval,
    seen=(("seen", _ids),),
    form=ApproveForm,
    asks="Correct and retry {}",
    done="It is corrected, and will be tried again from the first step.",
)
CLOSE = Verb(
    slug="close_correction",
    label="Do not correct it",
    permission=operations.CORRECT,
    operation=corrections.close,
    applies=lambda row: _asked(row) is not None,
    consequences=lambda row: [
        "What was asked for is refused; if you have asked for it yourself, it is withdrawn.",
        "The workflow stays failed, with what was sent. It can still be retried, and another correction asked for.",
    ],
    seen=(("seen", _ids),),
    asks="Leave {} as it is",
    done="It stays as it is.",
)
VERBS = (CORRECT, APPROVE, CLOSE)


def foretold(verb: str, row: Workflow) -> Iterator[str]:
    """What a plain retry, or an acknowledgement, does to an open correction."""
    if verb not in ("retry", "acknowledge") or not (asked := _asked(row)):
        return
    the_correction = f"The correction that {asked.asked_by.get_username()} has asked for"
    if verb == "retry":
        yield f"{the_correction} is dropped: this retry is without it."
    else:
        yield f"{the_correction} waits for another user all the same."


def lines(row: Workflow) -> Iterator[str]:
    """Notes about the corrections that were made, and the open one."""
    if asked := _asked(row):
        until = words.clock(asked.asked_at + corrections.LAPSES)
        yield f"{_in_words(asked)} {words.ended(asked.reason)} Another user has to approve it, or it lapses at {until}."
    for each in corrections.was_corrected(row):
        labels = ", ".join(told["label"] for told in each.told) or DELETED
        yield f"Corrected: {labels}, at {words.clock(each.decided_at)}."


def for_others(row: Workflow, user: User) -> Iterator[str]:
    """Who can correct a failure that a retry alone does not mend, for a user who can retry it, and not correct it."""
    if not user.has_perm(operations.RETRY) or user.has_perm(operations.CORRECT) or not acknowledging.is_the_next(row):
        return
    told = words_for_code(wording_of_type(row.workflow_type), row.last_error_code)
    if told.asks_nobody and not told.names_fields:
        return  # another card, or another program, is nothing that can be corrected here
    if corrections.correctable_of(row) and not _asked(row) and not corrections.why_not_now(row):
        yield "What was sent can be corrected, and the workflow retried: ask a support lead or an engineer."


def _in_words(asked: Correction) -> str:
    return f"{asked.asked_by.get_username()} asks for a correction: {in_words(asked.told)}."
