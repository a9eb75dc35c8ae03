"""What the operator's API says of a row: what the console's pages say of it, as JSON. Nothing here is unmasked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.utils.text import capfirst

from workflows import operations
from workflows.console import home, workflow_page
from workflows.console.needs_a_person_rows import Line
from workflows.definition import wording_of_type
from workflows.features.operator_api import proposals
from workflows.features.operator_api.acts import ACTS, seen_of_task, seen_of_workflow, version_of
from workflows.health import bounded
from workflows.health.counts import Counts
from workflows.health.health import judge
from workflows.models import BulkOperation, ManualTask, Proposal, Workflow
from workflows.operations.bulk_verbs import verbs
from workflows.telling import history, patient, words

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.console.workflow_list import WorkflowAdmin
    from workflows.models import Effect, Event

Json = dict[str, Any]
Verb = Proposal.Verb


def listed(page: WorkflowAdmin, row: Any) -> Json:
    """A row of the list of workflows, as its columns show it."""
    error = page.error_told(row)
    return {
        "id": row.pk,
        "type": row.workflow_type,
        "title": words.workflow_type(row.workflow_type),
        "about": patient.masked_by(row.workflow_type, row.about),
        "status": row.status,
        "state": row.state,
        "step": row.current_step if page.step(row) else "",
        "step_title": page.step(row),
        "attempts": row.attempt_number or 0,
        "failures": row.retry_count,
        "waiting_for": page.waits_for(row),
        "next_attempt_at": words.next_attempt_at(row),
        "code": row.last_error_code if error else "",
        "error": capfirst(error.replace("_", " ")),
        "money": row.money,
        "submitted_at": row.created_at,
        "ended_at": row.completed_at,
    }


def workflow(row: Workflow, user: User) -> Json:
    """One workflow, as its page shows it to this user."""
    shown = workflow_page.page(row, user)
    return {
        "id": row.pk,
        "type": row.workflow_type,
        "title": shown["type"],
        "status": row.status,
        "state": row.state,
        "standing": shown["standing"],
        "notes": [note.text for note in shown["notes"]],
        "to_tell": shown["to_tell"],
        "caller": [{"label": label, "shown": text} for label, text in shown["caller"]],
        "money": shown["money"],
        "step": row.current_step,
        "code": row.last_error_code,
        "tasks": [task.pk for task, _ in shown["tasks"]] if user.has_perm("workflows.view_manualtask") else [],
        "submitted_at": row.created_at,
        "ended_at": row.completed_at,
        "version": version_of(seen_of_workflow(row)),
        "may_propose": _may_propose(row, user, Verb.RETRY, Verb.CANCEL),
    }


def _may_propose(row: Any, user: User, *names: Verb) -> Json:
    """Why a key of this user may not propose each of these acts, in a sentence; empty if it may."""
    told = {}
    for name in names:
        act = ACTS[name]
        refusal = "" if act.is_for(row, user) else "The person behind your API key may not do this."
        told[name.value] = refusal or act.why_not(row, user) or act.why_not_propose(row, user)
    return told


def event(row: Event, workflow_type: str) -> Json:
    line = history.line(row, wording_of_type(workflow_type))
    return {
        "id": row.pk,
        "at": line.at,
        "kind": line.kind,
        "headline": line.headline,
        "text": line.text,
        "by": line.actor or None,
        "attempt": line.attempt,
        "step": row.step or None,
    }


def call(row: Effect, title: str, key: str, error: str) -> Json:
    return {
        "id": row.pk,
        "step": row.step,
        "title": title,
        "generation": row.generation,
        "is_reversal": row.undo,
        "state": row.state,
        "told": row.get_state_display(),
        "error": error,
        "code": row.error_code,
        "by_hand": bool(row.by_hand),
        "idempotency_key": key,
        "begun_at": row.begun_at,
        "settled_at": row.settled_at,
    }


def line(row: Line) -> Json:
    """A row of “For you”."""
    return {
        "task": row.task,
        "workflow": row.workflow,
        "type": row.type,
        "asks": row.asks,
        "about": row.patient,
        "amount": row.amount,
        "whose": row.whose,
        "since": row.since,
        "due_at": row.due,
        "expires_at": row.expires,
        "is_overdue": row.is_overdue,
    }


def task(found: ManualTask, user: User) -> Json:
    """A task, without its question and facts: these may have in clear what was sent."""
    return {
        "id": found.pk,
        "workflow": found.workflow_id,
        "type": found.task_type,
        "title": words.task_type(found.task_type),
        "state": found.state,
        "team": found.team,
        "assigned_to": found.assignee.get_username() if found.assignee else None,
        "decided_by": found.decided_by.get_username() if found.decided_by else None,
        "nobody_decides": operations.why_nobody_decides(found) if found.state == ManualTask.State.OPEN else "",
        "created_at": found.created_at,
        "due_at": found.due_at,
        "expires_at": found.expires_at,
        "version": version_of(seen_of_task(found)),
        "may_propose": _may_propose(found, user, Verb.APPROVE, Verb.REJECT),
    }


def counts(read: Counts, user: User) -> Json:
    """Home's sentence and numbers."""
    health = home.health(judge(read), user)
    shown = {name: getattr(read, name) for name in home.NUMBERS}
    return {
        "at": read.at,
        "level": health.level.name.lower(),
        "verdict": health.word,
        "reasons": ["".join(text for text, _ in pieces) for pieces in health.reasons],
        "states": {state.value: number(each.number) for state, each in read.states.items()},
        "numbers": {
            name: {"label": home.NUMBERS[name], **number(count.number)}
            for name, count in shown.items()
            if home.may_follow(count.link, user)
        },
        "for_you": number(home.for_you(user, read, most=0)[1]),
    }


def number(counted: int) -> Json:
    """A bounded count: whether there are more."""
    return {"number": min(counted, bounded.COUNT_LIMIT), "is_exact": counted <= bounded.COUNT_LIMIT}


def found(each: Mapping[str, Any]) -> Json:
    """A workflow that Find has found."""
    row = each["row"]
    return {
        "id": row.pk,
        "type": row.workflow_type,
        "title": each["type"],
        "about": each["about"],
        "state": row.state,
        "step_title": each["step"],
        "money": each["money"],
        "by": each["by"],
        "submitted_at": row.created_at,
    }


def bulk(row: BulkOperation, preview: Any) -> Json:
    """What a bulk operation would do."""
    return {
        "id": row.pk,
        "verb": row.verb,
        "title": verbs()[row.verb].noun,
        "chosen_by": row.chosen_by,
        "selected": row.selected,
        "can": preview.can,
        "cannot": [{"number": number, "why": why} for number, why in preview.cannot],
        "money": preview.money,
        "version": version_of(ACTS[Verb.BULK].seen(row)),
    }


def proposal(row: Proposal) -> Json:
    of: Mapping[str, str] = {"workflow": "workflow", "task": "task", "bulk operation": "bulk"}
    over = proposals.why_over(row)
    lapsed = row.state == Proposal.State.ASKED and over
    return {
        "id": row.pk,
        "verb": row.verb,
        of[ACTS[Verb(row.verb)].noun]: row.row,
        "state": Proposal.State.LAPSED.value if lapsed else row.state,
        "reason": row.reason,
        "proposed_by": row.asked_by.get_username(),
        "key": row.api_key.name,
        "proposed_at": row.asked_at,
        "lapses_at": row.lapses_at,
        "decided_by": row.decided_by.get_username() if row.decided_by else None,
        "decided_at": row.decided_at,
    }
