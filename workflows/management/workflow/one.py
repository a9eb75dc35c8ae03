"""show, retry, cancel, run-now: subcommands for one workflow."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any
from uuid import UUID

from workflows import operations
from workflows.definition import definitions, wording_of
from workflows.errors import NotAllowed
from workflows.extension import installed
from workflows.management.workflow.subcommand import Subcommand, number
from workflows.models import Attempt, Effect, Event, ManualTask, Workflow
from workflows.operations import two_people
from workflows.operations.guards import VIEW, require
from workflows.telling import consequences, history, money, words
from workflows.telling.sentence import cause_of, small_print, standing
from workflows.telling.steps import step_of, undone_steps

if TYPE_CHECKING:
    from django.contrib.auth.models import User

EVENTS_SHOWN = 100


def _of(parser: ArgumentParser) -> None:
    parser.add_argument("workflow", metavar="ID", help="its number, or its key (a UUID)")


def find(text: str, user: User) -> Workflow:
    """The workflow with that id or key. Raises NotAllowed if there is none, PermissionDenied without the right."""
    require(user, VIEW)
    try:
        named: dict[str, Any] = {"idempotency_key": UUID(text)}
    except ValueError:
        named = {"pk": number(text, "workflow")}
    row = Workflow.objects.with_state().filter(**named).first()
    if row is None:
        raise NotAllowed(f"There is no workflow {text}.")
    found: Workflow = row
    return found


def _show(user: User, options: dict[str, Any]) -> dict[str, Any]:
    row = find(options["workflow"], user)
    definition = definitions().get(row.workflow_type)
    effects = list(Effect.objects.filter(workflow=row).defer("error_message").order_by("id"))
    newest = Attempt.objects.filter(workflow=row).order_by("-number").first()
    said = [each.says(row, newest) for each in installed()]
    told = standing(row, newest, undone_steps(definition, effects), cause_of(row), said)
    pending = row.status == Workflow.Status.PENDING
    next_attempt = at.isoformat(timespec="seconds") if (at := words.next_attempt_at(row)) else ""
    lines = [
        history.line(event, wording_of(definition))
        for event in Event.objects.filter(workflow=row).order_by("-id")[:EVENTS_SHOWN]
    ]
    return {
        **_named(row),
        "type": words.workflow_type(row.workflow_type),
        "state": row.state,
        "stands": told,
        "details": small_print(row, newest, newest),
        "step": "" if row.status == Workflow.Status.COMPLETE else step_of(row, row.current_step),
        "waiting_for": row.waiting_for if pending else "",
        "next_attempt": next_attempt,
        "questions": [words.task_type(task.task_type) for task in _open_tasks(row)],
        "money": money.money_line(
            row, definition, row.payload, effects, claimed_by=two_people.who_said_by_hand(row.pk)
        ),
        "history": [_line(each) for each in lines],
    }


def _line(line: history.Line) -> dict[str, Any]:
    return {
        "at": line.at.isoformat(timespec="seconds"),
        "what": line.headline,
        "by": line.actor,
        "attempt": line.attempt,
        "text": line.text,
        "details": line.small_print,
    }


def _retry(user: User, options: dict[str, Any]) -> dict[str, Any]:
    row = find(options["workflow"], user)
    told = list(consequences.of_retry(row)) if row.status == Workflow.Status.FAILED else []
    before = operations.retry(row.pk, user=user, reason=options["reason"], seen=operations.ended_at(row))
    return {**_named(row), "what_happens": [*filter(None, [before]), *told]}


def _cancel(user: User, options: dict[str, Any]) -> dict[str, Any]:
    row = find(options["workflow"], user)
    charges, tasks = operations.held_by(row), [task.pk for task in _open_tasks(row)]
    told = list(consequences.of_cancel(row)) if row.status == Workflow.Status.PENDING else []
    done = operations.cancel(
        row.pk,
        user=user,
        reason=options["reason"],
        open_tasks=tasks,
        charged=charges.standing,
        unclear=charges.unclear,
    )
    return {**_named(row), "what_happens": told, "done": done}


def _run_now(user: User, options: dict[str, Any]) -> dict[str, Any]:
    row = find(options["workflow"], user)
    operations.run_now(row.pk, user=user, reason=options["reason"])
    return {**_named(row), "done": "A worker takes it up as soon as one is free."}


def _named(row: Workflow) -> dict[str, Any]:
    return {"workflow": row.pk, "key": str(row.key)}


def _open_tasks(row: Workflow) -> Any:
    return ManualTask.objects.open().filter(workflow=row.pk).order_by("pk")


SUBCOMMANDS = {
    "show": Subcommand(
        "Say what the page of a workflow says: where it stands, what it waits for, its money and history, masked.",
        _of,
        _show,
        ["show 4711", "show 3f0c8f0e-9c3e-4f6e-8a51-0d3c6a3a9b11 --json"],
        changes=False,
    ),
    "retry": Subcommand(
        "Start a failed or cancelled workflow again from its first step. It says what is charged again.",
        _of,
        _retry,
        ["retry 4711 --dry-run", 'retry 4711 --reason "The bank is back."'],
    ),
    "cancel": Subcommand(
        "Cancel a workflow that is under way. It says what is reversed, and what is given back. It needs a reason.",
        _of,
        _cancel,
        ["cancel 4711 --dry-run", 'cancel 4711 --reason "The customer has asked for it."'],
    ),
    "run-now": Subcommand(
        "Have a workflow that is retrying or waiting taken up at once.",
        _of,
        _run_now,
        ["run-now 4711"],
    ),
}
