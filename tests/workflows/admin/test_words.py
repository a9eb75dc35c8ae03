"""None of the engine's words is among those of the console: docs/glossary.md has the table of what it does not say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.contrib import admin
from django.contrib.admin.utils import label_for_field

from onboarding.wording import CALLER, CODES, RESULTS, STEPS
from workflows.console import home, navigation, needs_a_person, needs_a_person_rows
from workflows.console.base import ConsoleAdmin
from workflows.console.verbs import RetryForm
from workflows.console.workflow_filters import PresetFilter
from workflows.features.outages.circuits import CircuitState
from workflows.health.needs_a_person import Whose, kinds, sources
from workflows.health.reasons import Level
from workflows.models import Attempt, BulkItem, BulkOperation, Effect, Event, State, StepOutcome, UndeliveredMessage
from workflows.telling import patient, words
from workflows.wording import ENGINE_CODES

CHOICES = (
    *(State, CircuitState, Event.Kind, Attempt.Outcome, StepOutcome, Effect.State, Whose),
    *(BulkOperation.State, BulkItem.Outcome, UndeliveredMessage.State),
)


def shown() -> Iterator[str]:
    """What the console says of states, events, outcomes, codes, verbs and columns."""
    yield from (str(label) for choices in CHOICES for label in choices.labels)
    for model_admin in admin.site._registry.values():
        if isinstance(model_admin, ConsoleAdmin):
            yield from (verb.label for verb in model_admin.verbs)
            named = model_admin.list_display if "__str__" not in model_admin.list_display else []  # a page of its own
            yield from (str(label_for_field(name, model_admin.model, model_admin)) for name in named)
    yield from (label for _, label in PresetFilter.lookups(None, None, None))  # type: ignore[arg-type]
    yield from (each.label for each in navigation.pages())
    yield from (level.word for level in Level)
    for said in (
        home.NUMBERS,
        needs_a_person_rows.WHOEVER,
        needs_a_person.STATES,
        words.SAID,
        words.TASK_TYPES,
        RESULTS,
    ):
        yield from said.values()
    yield from (*kinds().values(), *(source.whom for source in sources().values()))
    yield from (*patient.LINES.values(), *RetryForm.USUAL)
    yield from (text for code in (*ENGINE_CODES.values(), *CODES.values()) for text in (code.staff, code.patient))
    yield from (text for step in STEPS.values() for text in (step.title, step.phase, step.waiting))
    yield from (field.label for field in CALLER)


NOT_SAID = [
    *(r"compensat", r"\bundo\b", r"\bundone\b", r"in doubt", r"\bput back\b", r"at rest", r"\bpayload\b"),
    *(r"\bawaits\b", r"somebody who may", r"\bidempotenc"),
]


def test_none_of_the_engines_words_is_on_the_screen() -> None:
    assert [text for text in shown() if re.search("|".join(NOT_SAID), text, re.IGNORECASE)] == []
