"""How each operation starts and ends: check the permission, lock the row, record an event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import psycopg.errors
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Model

from workflows import times
from workflows.errors import NotAllowed
from workflows.models import Event, State, Workflow, correction, manual_task
from workflows.postgres.sqlstates import violates
from workflows.postgres.statements import fetch_one
from workflows.state import history
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.auth.models import User

VIEW = "workflows.view_workflow"
SEE_SERVICES = "workflows.view_service"
RETRY = "workflows.retry_workflow"
RUN_NOW = "workflows.run_workflow_now"
CANCEL = "workflows.cancel_workflow"
CANCEL_PAID = "workflows.cancel_paid_workflow"
FOLLOW_UP = "workflows.follow_up_workflow"
ACKNOWLEDGE = "workflows.acknowledge_workflow"
CORRECT = f"workflows.{correction.CORRECT}"
DECIDE = manual_task.DECIDE
RESOLVE = manual_task.RESOLVE
ASSIGN = manual_task.ASSIGN
REVOKE = "workflows.revoke_apikey"
HOLD = "workflows.hold_service"
TRY_NOW = "workflows.try_service"
SET_PACE = "workflows.set_pace"
LET_FAIL = "workflows.let_fail_service"
SETTLE = "workflows.settle_undeliveredmessage"
ERASE = "workflows.erase_workflow"
PLACE_HOLD = "workflows.place_hold"
BULK = "workflows.start_bulkoperation"
REVEAL = "workflows.reveal_workflow"
VIEW_AUDIT = "workflows.view_audit"
EXPORT = "workflows.export_workflow"
VIEW_BULK = "workflows.view_bulkoperation"

# The prefix of API clients' names as actors.
API = "api:"

# Another operation locks a row for milliseconds; a release of 256 workflows locks a service's for 0.1 s.
LOCK_TIMEOUT = "2s"
BUSY = "Somebody is changing it at this moment: look at it again."

# The bulk operation of which the present operation is an item; None outside one, and REHEARSAL in a dry run.
REHEARSAL = 0
_bulk: ContextVar[int | None] = ContextVar("bulk", default=None)
# What the history says of the proposal that the present operation carries out; None outside one.
_proposal: ContextVar[Mapping[str, str] | None] = ContextVar("proposal", default=None)


class Actor(Protocol):
    """The actor of an operation: a user of the console, or an API client."""

    def has_perm(self, perm: str) -> bool: ...

    def get_username(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ApiClient:
    """An API client that may cancel what has charged nothing, and nothing else. No user's name has a colon in it."""

    name: str

    def has_perm(self, perm: str) -> bool:
        return perm == CANCEL

    def get_username(self) -> str:
        return f"{API}{self.name}"


class WorkflowBusy(NotAllowed):
    """A worker has locked the row."""


def require(user: Actor, *permissions: str) -> None:
    """Raise PermissionDenied unless the user has one of the permissions."""
    if not any(map(user.has_perm, permissions)):
        raise PermissionDenied(" or ".join(permissions))


def why_not_second(asked_by: User, user: User, asked_at: datetime) -> str:
    """Why `user` may not approve what `asked_by` has asked for; empty if they are two people.

    A deputy and the person for whom they stand in are one: the database refuses them, too (migration 0033).
    """
    if asked_by == user:
        return "You have asked for it yourself: another user approves it."
    if count_as_one_since(asked_by.pk, user.pk, asked_at):
        return f"You and {asked_by.get_username()} count as one person, as deputies: another person approves."
    if (email := user.email.strip().lower()) and email == asked_by.email.strip().lower():
        return f"Your account has the same e-mail address as {asked_by.get_username()}: another person approves."
    return ""


def count_as_one_since(first: Any, second: Any, since: datetime) -> bool:
    """Whether two users count as one person for what one of them did at `since`: `models.deputy.count_as_one`."""
    return fetch_one("SELECT workflows_count_as_one(%s, %s, %s)", (first, second, since)) == (True,)


def stated(reason: str) -> str:
    """The reason as it is stored: without spaces around it, and without invisible characters such as U+200B."""
    return "".join(each for each in reason if each.isprintable() or each.isspace()).strip()


def require_reason(reason: str, what: str) -> None:
    if not stated(reason):
        raise NotAllowed(f"Say why: {what} needs a reason.")


@contextmanager
def item_of(bulk: int) -> Iterator[None]:
    """Run the operation within as an item of a bulk operation: in the transaction that records its outcome."""
    token = _bulk.set(bulk)
    try:
        yield
    finally:
        _bulk.reset(token)


@contextmanager
def as_proposed(*, proposed_by: str, key: str, note: str = "") -> Iterator[None]:
    """Run the operations within as what was proposed: in the transaction that decides the proposal.

    `note` is what the user who approves it has to say.
    """
    token = _proposal.set({"proposed_by": proposed_by, "api_key": key, **({"note": stated(note)} if note else {})})
    try:
        yield
    finally:
        _proposal.reset(token)


def _is_alone() -> bool:
    """Whether the operation has a transaction of its own."""
    return _bulk.get() is None and _proposal.get() is None


def after_commit(do: Callable[[], object]) -> None:
    """Call `do` after the operation's transaction; for one within another transaction, after that one."""
    if _is_alone():
        do()
    else:
        transaction.on_commit(do)


@contextmanager
def rehearsed() -> Iterator[None]:
    """For a dry run: the operations within check all their rules, and everything they do is rolled back."""
    with transaction.atomic(), item_of(REHEARSAL):
        yield
        transaction.set_rollback(True)


# A refusal is recorded although the caller's transaction is rolled back, and only what is committed wakes a worker.
NESTED = (
    "An operation commits what it does: call it outside of transaction.atomic(); if ATOMIC_REQUESTS is on, in a view "
    "with @transaction.non_atomic_requests."
)


@contextmanager
def short_transaction(busy: str = BUSY) -> Iterator[None]:
    """An operation's own transaction. Raises NotAllowed with the sentence `busy` instead of waiting long for a row.

    Raises it, too, if a deputation has begun since the operation looked: the database has the last word on four eyes.
    """
    try:
        with ExitStack() as stack:
            try:
                stack.enter_context(transaction.atomic(durable=_is_alone()))
            except RuntimeError as nested:
                raise RuntimeError(NESTED) from nested
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
            raise NotAllowed(busy) from error
        raise
    except IntegrityError as error:
        if violates(error, "four_eyes_of_deputies"):  # since the operation has looked
            raise NotAllowed("You count as one person with who asked for it, as deputies: another decides.") from None
        raise


def lock_workflow(workflow_id: int) -> tuple[Workflow, State]:
    """Lock a workflow's row and read it, with its state. Never waits: a worker may keep the lock for a whole run."""
    rows = Workflow.objects.with_state().defer("payload", "context")
    try:
        workflow = rows.select_for_update(nowait=True, no_key=True).filter(pk=workflow_id).first()
    except OperationalError as error:
        if isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
            raise WorkflowBusy("It is running right now; try again in a moment.") from error
        raise
    if workflow is None:
        raise NotAllowed(f"There is no workflow {workflow_id}.")
    if refusal := why_emptied(workflow):
        raise NotAllowed(refusal)
    return workflow, State(workflow.state)


def why_emptied(workflow: Workflow) -> str:
    """Why nothing can be done with a workflow: its content was deleted. Empty if it has content."""
    if not workflow.emptied_at:
        return ""
    return of_person(
        f"What it was sent was deleted at {times.minute(workflow.emptied_at)}: nothing can be done with it any "
        "more. If the patient still needs something, they have to send it again."
    )


def require_status(workflow: Workflow, state: State, status: Workflow.Status, only: str) -> None:
    """Raise NotAllowed unless the workflow has the status. `only` says what needs which status."""
    if workflow.status != status:
        raise NotAllowed(f"Only {only}; this one is {state.label.lower()}.")


def record_event(
    workflow_id: int, kind: Event.Kind, user: Actor, *, step: str = "", reason: str, **detail: Any
) -> None:
    """Write one event to the history, in the operation's transaction: see `history.record`."""
    if bulk := _bulk.get():
        detail["bulk"] = bulk
    detail |= _proposal.get() or {}
    history.record(workflow_id, kind, step=step, actor=user.get_username(), reason=stated(reason), **detail)


def record_events(steps: Mapping[int, str], kind: Event.Kind, user: Actor, *, reason: str) -> None:
    """Write the same event to the history of each of these workflows, with its step."""
    said = {"reason": stated(reason), **({"bulk": bulk} if (bulk := _bulk.get()) else {})}
    who = user.get_username()
    Event.objects.bulk_create(
        Event(workflow_id=pk, kind=kind, step=step, actor=who, detail=said) for pk, step in steps.items()
    )


def record_for(row: Model, user: User, what: str, reason: str) -> None:
    """Write to the console's log what was done to a row that is not a workflow."""
    told = f"{what}. {stated(reason)}".strip()
    if bulk := _bulk.get():
        told = f"{told} In bulk operation {bulk}."
    if proposal := _proposal.get():
        told = f"{told} Proposed by {proposal['proposed_by']}, with the API key {proposal['api_key']}."
        if user.get_username() != proposal["proposed_by"]:  # the note is the approver's, not the proposer's
            told = f"{told} {proposal.get('note', '')}".strip()
    LogEntry.objects.log_actions(user.pk, [row], CHANGE, told, single_object=True)
