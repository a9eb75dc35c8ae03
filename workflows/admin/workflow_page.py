"""The page of one workflow: where it stands, what happened, what was sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from workflows import find as finding
from workflows.admin import acknowledging, words
from workflows.admin.connections import related_rows
from workflows.admin.find import rows_of
from workflows.admin.money import money_line
from workflows.admin.patient import caller, sent, to_tell
from workflows.admin.phases import phases
from workflows.admin.sentence import sentence, small_print
from workflows.admin.steps import lines_of, recorded_error, step_lines, undone_steps
from workflows.definition import definitions, undo_of, wording_of
from workflows.effects import recorded_key
from workflows.models import Attempt, Effect, Event, FollowUp, ManualTask, State, StepOutcome, Workflow
from workflows.wording import Wording, words_for_code, words_for_step

ATTEMPTS_SHOWN = 20
EVENTS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the history."""

    at: datetime
    headline: str
    text: str
    actor: str
    attempt: int | None
    kind: str


def page(workflow: Workflow, *, before: str = "") -> dict[str, Any]:
    attempts = list(Attempt.objects.filter(workflow=workflow).order_by("-number")[:ATTEMPTS_SHOWN])
    tasks = list(ManualTask.objects.open().filter(workflow=workflow).only("id", "task_type", "expires_at"))
    payload, context = Workflow.objects.values_list("payload", "context").get(pk=workflow.pk)
    newest, last = attempts[0] if attempts else None, _last_run(attempts)
    effects = list(Effect.objects.filter(workflow=workflow).defer("error_message").order_by("id"))
    definition = definitions().get(workflow.workflow_type)
    wording = wording_of(definition)
    others = finding.others_of(workflow.pk, definition, payload)
    steps, passed_over = step_lines(definition, last, effects), _passed_over(workflow, last)
    history = list(_events(workflow, before)[: EVENTS_SHOWN + 1])
    return {
        "badge": words.badge(workflow.state, State(workflow.state).label),
        "standing": sentence(workflow, newest, undone_steps(effects)),
        "acknowledged": acknowledging.line(workflow),
        "small_print": small_print(workflow, newest, last),
        "state_label": State(workflow.state).label,
        "is_at_rest": workflow.status != Workflow.Status.PENDING,
        "tasks": [(task, words.task_type(task.task_type)) for task in tasks],
        "to_tell": to_tell(
            definition, workflow, passed_over=list(passed_over.values()), effects=effects, asked=bool(tasks)
        ),
        "caller": caller(definition, payload),
        "money": money_line(definition, payload, effects),
        "others": others,
        "other_rows": rows_of(others) if others.ids else [],
        "attempt": last,
        "phases": phases(wording, steps),
        "passed_over": list(_in_words(wording, _without_a_line(workflow, passed_over))),
        "attempts": [(attempt, lines_of(attempt, definition)) for attempt in attempts if attempt is not last],
        "attempts_left_out": attempts[-1].number - 1 if attempts else 0,
        "effects": [
            (effect, words_for_step(wording, effect.step).title, recorded_key(workflow, effect)) for effect in effects
        ],
        **related_rows(workflow),
        "history": [_line(event) for event in history[:EVENTS_SHOWN]],
        "older": history[EVENTS_SHOWN - 1].pk if len(history) > EVENTS_SHOWN else None,
        "linking_id": words.masked_tail(workflow.linking_id),
        "business_key": words.masked_tail(workflow.business_key),
        "payload": sent(definition, payload),
        "context": words.masked_fields(context),
    }


def _passed_over(workflow: Workflow, attempt: Attempt | None) -> dict[str, str]:
    """The best-effort steps that failed in an attempt, and were not done since, each with its error's code."""
    steps: Sequence[Mapping[str, Any]] = attempt.steps if attempt else []
    failed = [step for step in steps if step["outcome"] == StepOutcome.BEST_EFFORT_FAILED]
    if not failed:
        return {}
    followed_up = Event.objects.filter(workflow=workflow, kind=Event.Kind.FOLLOWED_UP)
    done = set(followed_up.values_list("step", flat=True))
    return {step["step"]: str(step.get("error_code") or "") for step in failed if step["step"] not in done}


def _without_a_line(workflow: Workflow, passed_over: Mapping[str, str]) -> dict[str, str]:
    """Those of which the sentence does not say already that they are to be done."""
    to_do = set(FollowUp.objects.filter(workflow=workflow).values_list("step", flat=True)) if passed_over else ()
    return {step: code for step, code in passed_over.items() if step not in to_do}


def _in_words(wording: Wording, failures: Mapping[str, str]) -> Iterator[str]:
    """A line for each step that failed: its title, and what its code means."""
    for step, code in failures.items():
        yield f"{words_for_step(wording, step).title}: {words_for_code(wording, code).staff}"


# --- Steps --------------------------------------------------------------------------------------


def _last_run(attempts: Sequence[Attempt]) -> Attempt | None:
    """The last attempt that ran the list of steps, or died in it.

    While an attempt runs its steps are not written yet. One that was put back, or undid something, has run no step; and
    what comes after the one that completed the workflow follows up a single step.
    """
    closed = [attempt for attempt in attempts if attempt.closed_at]
    if completed := [attempt for attempt in closed if attempt.outcome == Attempt.Outcome.COMPLETE]:
        return completed[0]
    return next((attempt for attempt in closed if _ran_the_list(attempt)), closed[0] if closed else None)


def _ran_the_list(attempt: Attempt) -> bool:
    if attempt.steps:
        return not attempt.steps[0].get("undo")
    return bool(attempt.died_in) and not attempt.died_in.startswith(undo_of(""))


# --- History ------------------------------------------------------------------------------------


def _events(workflow: Workflow, before: str) -> QuerySet[Event]:
    events = Event.objects.filter(workflow=workflow).order_by("-id")
    return events.filter(id__lt=int(before)) if before.isdecimal() else events


def _line(event: Event) -> Line:
    return Line(
        at=event.at,
        headline=_headline(event),
        text=_describe(event),
        actor=event.actor,
        attempt=event.attempt,
        kind=event.kind,
    )


def _headline(event: Event) -> str:
    """The headline of an event; of an answer about a call, what the answer says, not that it was an approval."""
    said = event.detail.get("said") if event.kind in (Event.Kind.APPROVED, Event.Kind.REJECTED) else None
    return words.SAID.get(str(said), event.get_kind_display())


def _describe(event: Event) -> str:
    """An event's detail as text, from the fields that are known: an unknown one may hold anything."""
    detail, step = event.detail, event.step
    match event.kind:
        case Event.Kind.RETRY_SCHEDULED | Event.Kind.UNDO_FAILED:
            number, most = detail.get("failures"), detail.get("max_attempts", "?")
            # Without a number no failure was counted: it is too early to tell whether a call has happened.
            failure = f"{step}{f', failure {number} of {most}' if number else ''}: {recorded_error(detail)}"
            if event.kind == Event.Kind.UNDO_FAILED:  # after the last of them a person is asked, at once
                return failure
            return f"{failure}\nNext attempt at {_moment(detail.get('invisible_until'))}"
        case Event.Kind.COMPENSATED:
            undone = detail.get("undone")
            return f"Reversed: {', '.join(map(str, undone))}" if undone else "Nothing was left to reverse."
        case (
            Event.Kind.FAILED
            | Event.Kind.BEST_EFFORT_FAILED
            | Event.Kind.FOLLOW_UP_FAILED
            | Event.Kind.FOLLOW_UP_GIVEN_UP
        ):
            return f"{step}: {recorded_error(detail)}" if step else recorded_error(detail)
        case Event.Kind.WAITING:
            return f"{step}, until {_moment(detail.get('until'))}: {detail.get('waiting_for', '?')}"
        case Event.Kind.ACKNOWLEDGED if detail.get("steps"):
            return f"{', '.join(map(str, detail['steps']))}: {detail.get('reason', '')}"
        case Event.Kind.TASK_ASSIGNED:
            return ": ".join(part for part in (f"To {detail.get('to', '?')}", str(detail.get("reason") or "")) if part)
        case Event.Kind.FOLLOWED_UP:
            return f"{step} has been done."
        case Event.Kind.PARKED:
            return f"{step}: the {detail.get('service', '?')} service is unavailable"
        case Event.Kind.CRASHED | Event.Kind.KILLED | Event.Kind.INTERRUPTED | Event.Kind.LOST:
            return ": ".join(part for part in (step, str(detail.get("how") or "")) if part)
        case Event.Kind.TAKEN_BACK:
            said = words.SAID.get(str(detail.get("said")), "an answer")
            answer = f"{step}: “{said}”, as {detail.get('answered_by', '?')} had answered"
            return "\n".join(part for part in (answer, str(detail.get("reason") or "")) if part)
        case Event.Kind.APPROVED | Event.Kind.REJECTED if "said" in detail:
            answer = ": ".join(part for part in (step, words.answered(detail)) if part)
            return "\n".join(part for part in (answer, str(detail.get("reason") or "")) if part)
    return str(detail.get("reason") or "")


def _moment(text: Any) -> str:
    try:
        return words.clock(datetime.fromisoformat(str(text)))
    except ValueError:
        return "an unknown time"
