"""The page of one workflow: where it stands, what happened, and what was sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from workflows import authors
from workflows.console import acknowledging
from workflows.console.attempts import last_full_attempt, listed
from workflows.console.connections import related_rows
from workflows.console.find import rows_of
from workflows.console.paging import older
from workflows.console.panels import by_place
from workflows.console.path import path
from workflows.console.phases import phases
from workflows.definition import definitions, wording_of
from workflows.effects import IN_DOUBT, KEPT, NOT_DONE, recorded_key
from workflows.extension import Note, installed
from workflows.models import Attempt, Effect, Event, FollowUp, ManualTask, Pause, Workflow
from workflows.models.workflow import PAUSED
from workflows.operations.guards import SEE_SERVICES
from workflows.search import find as finding
from workflows.telling import history, words
from workflows.telling.money import money_line
from workflows.telling.patient import aim_told, amount_told, caller, is_to_go_on, passed_over_in, sent, to_tell
from workflows.telling.sentence import cause_of, small_print, standing
from workflows.telling.steps import lines_of, step_lines, title_of, told_error, undone_steps
from workflows.wording import Wording, words_for_code, words_for_step

if TYPE_CHECKING:
    from django.contrib.auth.models import User

EVENTS_SHOWN = 100


def page(workflow: Workflow, user: User, *, before: str = "") -> dict[str, Any]:
    attempts = listed(workflow)
    for each in attempts:
        each.attempt.traceback = authors.told(workflow.key, each.attempt.number) or each.attempt.traceback
    tasks = list(ManualTask.objects.open().filter(workflow=workflow).only("id", "task_type", "expires_at"))
    payload, context = Workflow.objects.values_list("payload", "context").get(pk=workflow.pk)
    workflow.payload = payload  # features read it: the row came without
    newest, last = attempts[0].attempt if attempts else None, last_full_attempt([each.attempt for each in attempts])
    effects = effects_of(workflow)
    definition = definitions().get(workflow.workflow_type)
    wording = wording_of(definition)
    others = finding.others_of(workflow.pk, definition, payload)
    said = [each.says(workflow, newest) for each in installed()]
    steps, passed_over = step_lines(definition, last, effects), passed_over_in(workflow, last)
    events, older_than = events_of(workflow, before)
    parked_on, sees_services = cause_of(workflow), user.has_perm(SEE_SERVICES)
    stands = standing(workflow, newest, undone_steps(definition, effects), parked_on, said)
    if not sees_services:
        events, stands = history.without_services(events), words.unnamed(stands, workflow.parked_on)
    claimed_by = acknowledging.claimed_by(workflow)
    return {
        "badge": words.state_badge(workflow),
        "tone": words.state_tone(workflow),
        "standing": stands,
        "is_to_be_mended": parked_on is not None,
        "notes": [
            *(note for each in said for note in each.notes),
            *_acknowledged(workflow),
            *(note for each in installed() for note in each.notes(workflow, user)),
            *_passed_over(wording, _without_a_line(workflow, passed_over)),
        ],
        "small_print": small_print(workflow, newest, last),
        "state_label": words.state_label(workflow),
        "type": words.workflow_type(workflow.workflow_type),
        "is_at_rest": workflow.status != Workflow.Status.PENDING,
        "tasks": [(task, words.task_type(task.task_type)) for task in tasks],
        "to_tell": to_tell(
            definition,
            workflow,
            passed_over=list(passed_over.values()),
            effects=effects,
            amount=amount_told(definition, payload),
            aim=aim_told(definition, payload),
            asked=bool(tasks),
            to_be_mended=parked_on is not None,
            by_hand=bool(claimed_by),
            to_go_on=is_to_go_on(workflow),
            paused_until=_paused_until(workflow),
            wrong=[each.label for each in words.told_faults(workflow)],
        ),
        "caller": caller(definition, payload),
        "money": money_line(workflow, definition, payload, effects, claimed_by=claimed_by),
        "others": others,
        "other_rows": rows_of(others, sees_services=sees_services) if others.ids else [],
        "attempt": last,
        "died_in": _died_in(wording, last) if last else "",
        "path": path(workflow, definition, attempts, steps, events),
        "phases": phases(wording, steps),
        "attempts": [
            (each, lines_of(each.attempt, definition), _died_in(wording, each.attempt))
            for each in attempts
            if each.attempt is not last
        ],
        "attempts_left_out": attempts[-1].first - 1 if attempts else 0,
        "effects": ledger(workflow, wording, effects),
        **related_rows(workflow),
        "panels": by_place(panel for each in installed() for panel in each.panels(workflow, user)),
        "history": [history.line(event, wording) for event in events],
        "older": older_than,
        "linking_id": words.masked_tail(workflow.linking_id),
        "links": definition is not None and bool(definition.linking_id) and workflow.emptied_at is None,
        "business_key": words.masked_tail(workflow.business_key),
        "payload": sent(definition, payload),
        "context": words.masked_fields(context),
    }


def _paused_until(workflow: Workflow) -> datetime | None:
    if workflow.waiting_for != PAUSED:
        return None
    return Pause.objects.filter(workflow=workflow.pk).values_list("until", flat=True).first()


def events_of(workflow: Workflow, before: str) -> tuple[list[Event], int | None]:
    """A page of its events, newest first, from before this id; and the id before which the next page starts."""
    found = list(older(Event.objects.filter(workflow=workflow), before)[: EVENTS_SHOWN + 1])
    return found[:EVENTS_SHOWN], found[EVENTS_SHOWN - 1].pk if len(found) > EVENTS_SHOWN else None


def effects_of(workflow: Workflow) -> list[Effect]:
    return list(Effect.objects.filter(workflow=workflow).defer("error_message").order_by("id"))


def ledger(workflow: Workflow, wording: Wording, effects: Sequence[Effect]) -> list[tuple[Effect, str, str, str, str]]:
    """Each call with the title of its step, its idempotency key, its error in words, and as it was recorded."""
    return [
        (each, title_of(wording, each.step), recorded_key(workflow, each), *_error_of(wording, each))
        for each in effects
    ]


def _died_in(wording: Wording, attempt: Attempt) -> str:
    """The quoted title of the step, or undo, in which the worker died; empty if it did not."""
    title = title_of(wording, attempt.died_in)
    return f"“{title}”" if title and "“" not in title else title


def _error_of(wording: Wording, effect: Effect) -> tuple[str, str]:
    """The error of a call in words; and as it was recorded, if there are words.

    No words once a lookup, a person or a repeat has said what happened: engineers see the error of before.
    """
    told, recorded = told_error(wording, {"error_code": effect.error_code, "error_class": effect.error_class})
    is_open = effect.state in (*IN_DOUBT, NOT_DONE, KEPT) or effect.undo_failures or effect.undo_unavailable
    return (told if is_open else ""), recorded


def _without_a_line(workflow: Workflow, passed_over: Mapping[str, str]) -> dict[str, str]:
    """The failed steps, without those that the sentence already lists as still to be done."""
    to_do = set(FollowUp.objects.filter(workflow=workflow).values_list("step", flat=True)) if passed_over else ()
    return {step: code for step, code in passed_over.items() if step not in to_do}


def _passed_over(wording: Wording, failures: Mapping[str, str]) -> Iterator[Note]:
    """A note for each failed step: its title, and what its code means."""
    for step, code in failures.items():
        told = f"{words_for_step(wording, step).title}: {words_for_code(wording, code).staff}"
        yield Note(f"This step failed; the workflow went on without it. {told}")


def _acknowledged(workflow: Workflow) -> Iterator[Note]:
    if told := acknowledging.line(workflow):
        yield Note(told, is_plain=True)
