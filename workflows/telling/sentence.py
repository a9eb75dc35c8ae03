"""THE SENTENCE: where a workflow stands, why, and what happens next. The small print has the code names."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet
from django.utils import timezone

from workflows.definition import definitions, wording_of_type
from workflows.engine import undo_question
from workflows.extension import Said
from workflows.models import Attempt, Event, Service, State, StepOutcome, Wait, Workflow
from workflows.operations import family_retries
from workflows.state.parking import mend_of, turn_at
from workflows.telling import words
from workflows.telling.steps import told_error
from workflows.telling.words import clock
from workflows.wording import Wording, known_words_for_code, words_for_step


def standing(
    workflow: Workflow,
    attempt: Attempt | None,
    undone: Sequence[str],
    parked_on: Service | None,
    said: Sequence[Said],
) -> str:
    """The first sentence of a workflow's page, and the lines below it. `said` comes from the features."""
    instead = next((each.instead for each in said if each.instead), "")
    lines = [instead or sentence(workflow, attempt, undone, parked_on), *(line for each in said for line in each.below)]
    if workflow.emptied_at:
        lines.append(f"What it was sent, and what came of it, was deleted at {clock(workflow.emptied_at)}.")
    return "\n".join(lines)


def cause_of(workflow: Workflow) -> Service | None:
    """The cause that a workflow is parked on; None if it is not parked on one."""
    return _causes(workflow).first() if workflow.parked_on else None


def is_at_a_cause(workflow: Workflow) -> bool:
    """Whether there is one."""
    return bool(workflow.parked_on) and _causes(workflow).exists()


def _causes(workflow: Workflow) -> QuerySet[Service]:
    return Service.objects.filter(name=workflow.parked_on).exclude(step="")


def sentence(
    workflow: Workflow, attempt: Attempt | None, undone: Sequence[str], parked_on: Service | None = None
) -> str:
    """Where a workflow stands, without features. `attempt` is the last one, `parked_on` its cause."""
    wording = wording_of_type(workflow.workflow_type)
    title = _title(wording, workflow.current_step)
    if reason := _rescheduled(workflow):
        return f"Paused until {clock(workflow.invisible_until)}: {reason}"
    match workflow.state:
        case State.COMPLETE:
            return f"Complete since {clock(workflow.completed_at)}."
        case State.FAILED:
            at = f" at {title}" if title else ""
            reversed_ = f"\nReversed since: {', '.join(_title(wording, step) for step in undone)}." if undone else ""
            return f"Failed{at}: {why(workflow)} Ended at {clock(workflow.completed_at)}.{reversed_}"
        case State.CANCELLED:
            retried = family_retries.under_way(workflow.pk)
            ended = f"{words.ended(workflow.last_error_message)} Ended at {clock(workflow.completed_at)}."
            return f"{ended}\n{retried}" if retried else ended
        case State.COMPENSATING:
            ended = (
                "It was cancelled."
                if workflow.cancelled_at
                else f"It failed at {title or 'its start'}: {why(workflow)}"
            )
            if undo_question.is_undecided(definitions().get(workflow.workflow_type), workflow):
                return f"{ended} What it did stands until a person has decided whether it is reversed."
            return f"{ended} What it did is being reversed where it can be.\n{_reversing(workflow, attempt, parked_on)}"
        case State.RUNNING if attempt:
            return f"Running since {clock(attempt.opened_at)}."
        case State.PARKED if parked_on:
            return (
                f"Waiting since {clock(workflow.parked_at)} for {mend_of(parked_on)}. "
                "What it has done stays, and it goes on by itself when that is mended."
            )
        case State.PARKED if workflow.waiting_for == turn_at(workflow.parked_on):
            return (
                f"Waiting since {clock(workflow.parked_at)} for its turn: the {workflow.parked_on} service has as many "
                "calls as it may have. The workflow goes on by itself."
            )
        case State.PARKED:
            return (
                f"Waiting since {clock(workflow.parked_at)} for the {workflow.parked_on} service, which is down. "
                "The workflow goes on by itself as soon as the service is back."
            )
        case State.WAITING:
            return _waiting(workflow)
        case State.RETRYING:
            failed = f"{title or 'It'} failed {words.in_a_row(workflow.retry_count)}. The last reason: {why(workflow)}"
            return f"{failed} The next try is at {clock(workflow.invisible_until)}."
    if workflow.invisible_until > timezone.now():
        return f"Paused until {clock(workflow.invisible_until)}."
    return f"Waiting for a worker since {clock(workflow.invisible_until)}."


def small_print(workflow: Workflow, attempt: Attempt | None, last: Attempt | None) -> str:
    """For engineers: the attempt, its worker, the step and the error by code names. `last` ran the list."""
    shown = last if workflow.state in (State.COMPLETE, State.FAILED) and last else attempt
    parts = [f"attempt {shown.number}" if shown else "no attempt yet"]
    if workflow.state == State.RUNNING and attempt:
        parts.append(attempt.worker)
    if workflow.status != Workflow.Status.COMPLETE and workflow.current_step:
        parts.append(workflow.current_step)
    if workflow.state in (State.FAILED, State.COMPENSATING, State.RETRYING, State.PARKED):
        parts.append(_error(workflow))
    return ", ".join(filter(None, parts))


def why(workflow: Workflow) -> str:
    """Why it last failed, by the words for the code; a code without words is for the small print only."""
    words_of_code = known_words_for_code(wording_of_type(workflow.workflow_type), workflow.last_error_code)
    unforeseen = "Something unforeseen happened" if _error(workflow) else "no error was recorded"
    wrong = [f"{each.label}: {each.wrong}" for each in words.told_faults(workflow)]
    return " ".join([words.ended(words_of_code.staff if words_of_code else unforeseen), *wrong])


def _error(workflow: Workflow) -> str:
    return words.error(
        code=workflow.last_error_code, error_class=workflow.last_error_class, message=workflow.last_error_message
    )


def _rescheduled(workflow: Workflow) -> str:
    """Why the engine has rescheduled a workflow; empty if it has not."""
    if workflow.state not in (State.QUEUED, State.RETRYING) or workflow.invisible_until <= timezone.now():
        return ""
    last = Event.objects.filter(workflow=workflow, attempt__isnull=False).order_by("-id").first()
    if last is None or last.kind != Event.Kind.RESCHEDULED:
        return ""
    return str(last.detail.get("reason", "no reason was recorded"))


def _waiting(workflow: Workflow) -> str:
    if late := Wait.objects.overdue().filter(workflow=workflow).order_by("due_at").first():
        since = f"Waiting for {workflow.waiting_for}, overdue since {clock(late.due_at)}."
        return f"{since} It is waited for until {clock(late.deadline)}."
    return f"Waiting until {clock(workflow.invisible_until)}: {workflow.waiting_for}"


def _reversing(workflow: Workflow, attempt: Attempt | None, parked_on: Service | None) -> str:
    """How far the compensation has come."""
    if attempt and _is_under_way(attempt):
        return f"A worker has been reversing it since {clock(attempt.opened_at)}."
    if parked_on:
        return f"It waits for {mend_of(parked_on)}, and goes on by itself when that is mended."
    if workflow.parked_on and workflow.waiting_for == turn_at(workflow.parked_on):
        return f"It waits for its turn at the {workflow.parked_on} service, and goes on by itself."
    if workflow.parked_on and workflow.waiting_for:
        return f"It waits for the {workflow.parked_on} service, which is down: {workflow.waiting_for}"
    if workflow.waiting_for:
        return f"It waits for an answer: {workflow.waiting_for}"
    if workflow.invisible_until > timezone.now():
        tried = _last_reversal(wording_of_type(workflow.workflow_type), attempt)
        return f"{tried}The next try is at {clock(workflow.invisible_until)}."
    return "A worker does that as soon as one is free."


def _last_reversal(wording: Wording, attempt: Attempt | None) -> str:
    """Why the last try to find a call, or to reverse it, failed; empty if none has."""
    step = attempt.steps[-1] if attempt and attempt.steps else {}
    if step.get("outcome") != StepOutcome.UNDO_FAILED:
        return ""
    return f"The last try, at {_title(wording, step['step'])}, failed: {told_error(wording, step)[0]} "


def _is_under_way(attempt: Attempt | None) -> bool:
    return bool(attempt and attempt.closed_at is None)


def _title(wording: Wording, step: str) -> str:
    return words_for_step(wording, step).titled if step else ""
