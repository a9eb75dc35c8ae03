"""WORDING: what staff and patients read of a workflow, in place of the names in the code.

A definition may give words to its steps, its error codes and its results; the console makes the others of the names.
The engine has words for its own codes, and for what to tell a patient in each state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.conf import settings

from workflows.spelling import explain_options


@explain_options
@dataclass(frozen=True, slots=True)
class StepWords:
    """A step's `title` ("Charge the card") and `phase` ("Payment"); `waiting` tells the patient why it waits there.

    `where` tells staff where to look whether an unclear call of it happened; `search` is the address of a search there,
    with `{key}` in place of the idempotency key.
    """

    title: str
    phase: str = ""
    waiting: str = ""
    where: str = ""
    search: str = ""

    @property
    def titled(self) -> str:
        """The title in a sentence, with the quotes that set it off."""
        return f"“{self.title}”"


@explain_options
@dataclass(frozen=True, slots=True)
class CodeWords:
    """An error code: what `staff` read of it, what to tell the `patient`; `passing` if a retry may mend it.

    Both are whole sentences. They say what happened and what can be done, and never whose fault it is. But `ours` says
    that it may be our own mistake, which many would meet, and not what this one has sent (docs/outages.md).
    `engineer`: one has to look before it is retried. `asks_nobody`: the patient was told what to do and starts again,
    so that no member of staff has to act. `names_fields`: the error's message is `field: what is wrong with it; ...`,
    by names of the payload (dotted) and without values, and staff read it.
    """

    staff: str
    patient: str
    passing: bool = False
    ours: bool = False
    asks_nobody: bool = False
    engineer: bool = False
    names_fields: bool = False


@explain_options
@dataclass(frozen=True, slots=True)
class Money:
    """Where the money is: the `step` that charges, the amount in the payload, and which result names the charge.

    `amount` and `currency` are fields of the payload (dotted), in the currency's smallest unit and by its ISO 4217
    code; `reference` is the field of the step's result, `refund` that of its undo's. `pays_out`: the step pays people,
    and charges nobody. Nobody is then told of a charged card, and staff read *paid out* and *reversed*.
    """

    step: str
    amount: str
    currency: str
    reference: str
    refund: str
    pays_out: bool = False

    @property
    def moved(self) -> str:
        """The word for the call."""
        return "paid out" if self.pays_out else "charged"

    @property
    def undo(self) -> tuple[str, str]:
        """The words for its undo: what it is, and what it has done."""
        return ("reversal", "reversed") if self.pays_out else ("refund", "refunded")


@explain_options
@dataclass(frozen=True, slots=True)
class Aim:
    """What the patient gets in the end: `what` ("your enrolment in"), and `names` of it ("the body program").

    The names are by the values of `field`, a field of the payload (dotted). Another value is not told: the sender may
    have put anything there.
    """

    what: str
    field: str
    names: Mapping[str, str]


@explain_options
@dataclass(frozen=True, slots=True)
class CallerField:
    """A field of the payload by which staff verify who calls: `show` gives the part of the value that they may see."""

    label: str
    path: str
    show: Callable[[Any], str]


@explain_options
@dataclass(frozen=True, slots=True)
class Wording:
    """The words of one workflow type.

    `title` is that of the type ("Onboarding"). `steps` and `codes` are by the names in the code; `results` labels the
    fields that calls return ("charge_id": "Charge"), and `examples` has a value of each (of a reference it is refused
    as an answer). `caller` are the fields by which a caller is verified; `aim` is for what to tell the patient.
    `same_business` says what workflows with one business key are for ("the same patient and program").
    """

    title: str = ""
    steps: Mapping[str, StepWords] = field(default_factory=dict)
    codes: Mapping[str, CodeWords] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    caller: Sequence[CallerField] = ()
    money: Money | None = None
    aim: Aim | None = None
    same_business: str = "the same business key"


def length(seconds: float) -> str:
    """A length of time in the largest unit that fits: `26 min`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def plain(name: str) -> str:
    """An identifier as words: `Clinical review` for `clinical_review`."""
    return name.replace("_", " ").capitalize()


# --- The engine's own ---------------------------------------------------------------------------------

_LATER = "There was a technical problem on our side. Our team is working on it. You do not need to do anything."
_ASKED = "We are checking something by hand before we go on. You do not need to do anything."

ENGINE_CODES: Mapping[str, CodeWords] = {
    "answer_invalid": CodeWords(
        "An approver's answer does not fit this release. Retry: the question is asked again.", _LATER, ours=True
    ),
    "braked": CodeWords(
        "Many workflows fail at this step for a reason that nobody explains; this waits until that is mended.",
        _LATER,
        passing=True,
    ),
    "approval_expired": CodeWords(
        "Nobody approved it in time. Retry: the question is asked again.",
        "A check by our team took too long. We are sorry; we can start it again.",
    ),
    "approval_rejected": CodeWords(
        "An approver rejected it; the history has the reason.",
        "After a check by our team we cannot go on with this. Please contact us if you want to know the reason.",
    ),
    "assignee_unknown": CodeWords("The person who should approve has no login here.", _LATER, passing=True),
    "broken_session": CodeWords(
        "A step broke off its worker's transaction. An engineer has to look before it is retried.", _LATER, ours=True
    ),
    "cancelled": CodeWords("It was cancelled.", "This was cancelled, as requested."),
    "does_not_apply": CodeWords(
        "It is unclear whether a call was made, and the step does not apply any more. A person has to find out.", _ASKED
    ),
    "duplicate_of": CodeWords(
        "Another submission has done the same. If this one is not the same, say so: Not a duplicate.",
        "We have received this more than once, and do it only once. You do not need to do anything.",
    ),
    "duplicate_differs": CodeWords(
        "It came beside another submission for the same, and differs; it was not carried out. If it "
        "should be, say so: Not a duplicate.",
        "We have another form from you. This one is different, and was not carried out. Please contact us if you need "
        "it.",
    ),
    "effect_in_doubt": CodeWords("It is unclear whether a call was made. A person has to find out.", _ASKED),
    "expired": CodeWords("It took too long.", "This took too long, so we stopped it. You can start again at any time."),
    "invalid": CodeWords(
        "What was sent cannot be read.", "Something in the form is missing or wrong. Please send it again."
    ),
    "keeps_being_lost": CodeWords(
        "Its workers keep losing the database. An engineer has to look.", _LATER, engineer=True
    ),
    "keeps_dying": CodeWords("Its workers keep dying. An engineer has to look.", _LATER, engineer=True),
    "let_fail": CodeWords("Many failed at the same step, and a user let them fail; the history says why.", _LATER),
    "none_after_key": CodeWords(
        "A step is wrong: it may have made a call and did not say so. An engineer has to look.", _ASKED, ours=True
    ),
    "overdue": CodeWords("A step took too long, and was stopped.", _LATER, passing=True),
    "poison": CodeWords(
        "It crashed three workers in a row. An engineer has to look before it is retried.", _LATER, engineer=True
    ),
    "requester_is_assignee": CodeWords("The person who asked for it cannot approve it. Assign somebody else.", _LATER),
    "requester_unknown": CodeWords(
        "Two people have to decide, and who asked for it has no login here.", _LATER, passing=True
    ),
    "service_unavailable": CodeWords("A service is down; this waits for it.", _LATER, passing=True),
    "service_busy": CodeWords(
        "A service has as many calls as it may have; this waits for its turn.", _LATER, passing=True
    ),
    "step_undeclared": CodeWords(
        "This release lacks a step that has made a call, or a wait that has started workflows. An engineer has to say "
        "whether that is right.",
        _ASKED,
    ),
    "team_unknown": CodeWords("The team that should approve does not exist here.", _LATER, passing=True),
    "unsettled": CodeWords(
        "It is too early to tell whether the call was made. Onramp checks again by itself.", _LATER, passing=True
    ),
    "wait_expired": CodeWords(
        "What it waited for did not come in time.",
        "We waited for something that did not come. Please contact us to hear what is missing.",
    ),
}

# For an error without a code, or with one that has no words.
UNFORESEEN = CodeWords("Something unforeseen happened. An engineer has to look before it is retried.", _LATER)


_PERSON = re.compile(r"\b(?:(?P<an>[Aa]) )?(?P<person>[Pp]atient)(?P<more>s\b)?(?!\w|\.\w)")


def of_person(text: str) -> str:
    """A sentence of the engine's, which says "patient", with the word for whom a project's workflows are about.

    That is the setting PERSON_WORD. Its plural ends in -s, and its "a" becomes "an" before a vowel.
    """
    word: str = settings.PERSON_WORD
    return text if word == "patient" else _PERSON.sub(partial(_named, word), text)


def _named(word: str, found: re.Match[str]) -> str:
    said = (word.capitalize() if found["person"][0] == "P" else word) + (found["more"] or "")
    article = found["an"] and found["an"] + ("n" if word[0] in "aeiou" else "")
    return f"{article} {said}" if article else said


def words_for_step(wording: Wording, name: str) -> StepWords:
    """The words of a step, by default made of its name."""
    return wording.steps.get(name) or StepWords(plain(name))


# Where the code's name is no word of support's.
_NAMES = {
    "duplicate_differs": "duplicate that differs",
    "duplicate_of": "a duplicate",
    "effect_in_doubt": "unclear call",
    "poison": "crashed its workers",
    "undo_in_doubt": "failed reversal",
}


def name_of_code(code: str) -> str:
    """A code in a few words, where its sentence is too long: `card declined`."""
    return _NAMES.get(code) or code.replace("_", " ")


def known_words_for_code(wording: Wording, code: str) -> CodeWords | None:
    """The words of an error code: the definition's, then the engine's; None if there are none."""
    return wording.codes.get(code) or ENGINE_CODES.get(code)


def words_for_code(wording: Wording, code: str) -> CodeWords:
    """The words of an error code, or UNFORESEEN."""
    return known_words_for_code(wording, code) or UNFORESEEN


def is_explained(wording: Wording, code: str) -> bool:
    """Whether a failure with this code says something about its workflow only."""
    words = known_words_for_code(wording, code)
    return words is not None and not (words.ours or words.passing)


def label_of_result(wording: Wording, name: str) -> str:
    """The label of a field that a call returns."""
    return wording.results.get(name) or plain(name)
