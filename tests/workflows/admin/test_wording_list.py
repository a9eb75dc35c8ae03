"""Every word that the console has for a state, an event, an outcome, a code or a verb stands in docs/wording.md.

A new one is a decision: it is written there first. And none of the engine's words is among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.contrib.admin.utils import label_for_field
from django.utils.text import capfirst

from onboarding.wording import CALLER, CODES, RESULTS, STEPS
from tests.servers import ROOT
from workflows.console import (
    bulk_operation,
    cause,
    failures,
    home,
    navigation,
    needs_a_person,
    paging,
    patient,
    service,
)
from workflows.console.base import ConsoleAdmin, RetryForm
from workflows.console.workflow import PresetFilter
from workflows.health.health import Level
from workflows.health.needs_a_person import Kind, Whose
from workflows.models import Attempt, BulkItem, BulkOperation, Effect, Event, State, StepOutcome, UndeliveredMessage
from workflows.outages.circuits import CircuitState
from workflows.telling import words
from workflows.wording import ENGINE_CODES, UNFORESEEN

LIST = ROOT / "docs" / "wording.md"


def shown() -> Iterator[tuple[str, str]]:
    """What the console says, with the heading under which it stands in the list."""
    for heading, choices in (
        ("States", State),
        ("Circuits", CircuitState),
        ("History", Event.Kind),
        ("Attempts", Attempt.Outcome),
        ("Steps", StepOutcome),
        ("Calls", Effect.State),
        ("Bulk operations", BulkOperation.State),
        ("Bulk operations", BulkItem.Outcome),
        ("Undelivered messages", UndeliveredMessage.State),
        ("Needs a person", Kind),
        ("Needs a person", Whose),
    ):
        yield from ((heading, str(label)) for label in choices.labels)
    yield from (
        ("Circuits", label) for label in [*cause.LABELS.values(), *cause.KINDS.values(), *service.KINDS.values()]
    )
    yield from (("Verbs", label) for label in bulk_operation.LABELS.values())
    yield from (("Needs a person", whoever) for whoever in needs_a_person.WHOEVER.values())
    yield from (("Needs a person", whose) for whose in (failures.SUPPORT, failures.ENGINEERS, failures.NOBODY))
    yield from (("Failures", text) for text in (*failures.SHOWN.values(), *failures.ADVICE.values()))
    yield from (("States of tasks", label) for label in needs_a_person.STATES.values())
    yield from (("Answers", said) for said in words.SAID.values())
    yield from (("Types of tasks", label) for label in words.TASK_TYPES.values())
    for model_admin in admin.site._registry.values():
        if isinstance(model_admin, ConsoleAdmin):
            yield from (("Verbs", verb.label) for verb in model_admin.verbs)
            yield from (("Columns", title) for title in columns(model_admin))
    yield from (("Verbs", usual) for usual in RetryForm.USUAL)
    yield from (("Lists", label) for _, label in PresetFilter.lookups(None, None, None))  # type: ignore[arg-type]
    yield from (("Lists", label) for label in paging.LINKS)
    yield from (("Home", level.word) for level in Level)
    yield from (("Home", label) for label in home.NUMBERS.values())
    yield from (("Pages", label) for label, _, _ in navigation.PAGES)
    patients = [*patient.LINES.values(), patient.TO_BE_MENDED, *patient.OF_MONEY]
    yield from (("What to tell the patient", line) for line in patients if line)
    for heading, codes in (("Codes of the engine", ENGINE_CODES), ("Codes of onboarding", CODES)):
        for code in codes.values():
            yield heading, code.staff
            yield heading, code.patient
    yield "Codes of the engine", UNFORESEEN.staff
    for step in STEPS.values():
        yield from (("Steps of onboarding", text) for text in (step.title, step.phase, step.waiting) if text)
    yield from (("Results and fields of onboarding", label) for label in RESULTS.values())
    yield from (("Results and fields of onboarding", field.label) for field in CALLER)


def columns(model_admin: ConsoleAdmin) -> Iterator[str]:
    """The titles of the columns of a list; on a phone they stand in each card."""
    for name in model_admin.list_display if "__str__" not in model_admin.list_display else []:  # a page of its own
        yield str(capfirst(label_for_field(name, model_admin.model, model_admin)))


def listed() -> dict[str, list[str]]:
    """The list, by heading."""
    parts = re.split(r"^## (.+)\n", LIST.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        heading: re.findall(r"^- (.+)$", text, re.MULTILINE)
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_the_list_has_every_word_and_no_other() -> None:
    expected: dict[str, set[str]] = {}
    for heading, text in shown():
        expected.setdefault(heading, set()).add(text)
    assert {heading: sorted(texts) for heading, texts in expected.items()} == listed()


# docs: the table of what the console does not say.
NOT_SAID = [
    *(r"compensat", r"\bundo\b", r"\bundone\b", r"in doubt", r"\bput back\b", r"at rest", r"\bpayload\b"),
    *(r"\bawaits\b", r"somebody who may", r"\bidempotenc"),
]


@pytest.mark.parametrize("word", NOT_SAID)
def test_none_of_the_engines_words_is_on_the_screen(word: str) -> None:
    assert [text for _, text in shown() if re.search(word, text, re.IGNORECASE)] == []
