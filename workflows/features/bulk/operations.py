"""Bulk operations: people choose rows once, and the workers carry out one operation on them.

    choose -> start (-> approve) -> the workers' slices, with pause, resume and cancel -> done

`choose` stores the rows by one statement: rows that match later are not included. The function that does the same to
one row carries out each item, in a savepoint of the transaction that records the outcome. So each item has exactly one
outcome, even after a crash: done, skipped (the function refused it) or failed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction
from django.db.models import Case, Count, F, Q, QuerySet, Value, When

from workflows.engine.maintenance import DEATHS
from workflows.errors import NotAllowed
from workflows.features.brake.operations import ALONE
from workflows.models import BulkItem, BulkOperation, Chore, Proposal
from workflows.models.clock import ClockTimestamp
from workflows.models.deputy import count_as_one
from workflows.operations.bulk_verbs import MOST, carry_out_together, verbs
from workflows.operations.chores import BULK_OPERATIONS as CHORE
from workflows.operations.chores import forget_deaths
from workflows.operations.guards import (
    BULK,
    CANCEL_PAID,
    item_of,
    record_for,
    require,
    require_reason,
    short_transaction,
    stated,
    why_not_second,
)
from workflows.operations.payments import charged_again
from workflows.operations.two_people import is_needed_to_retry
from workflows.postgres.statements import execute
from workflows.signals.waking import Slice
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

State, Outcome = BulkOperation.State, BulkItem.Outcome

# How many rows one person may decide on alone if patients lose nothing: an outage of some minutes.
MANY_ALONE = 500
# Items a second that the services, and workers with other work, take with ease.
USUAL_PACE, FASTEST = 5, 50
# Seconds of a slice. Its items' rows stay locked for that long.
SLICE = 0.2
# Workers that are up to so many seconds late still catch up with the pace.
CATCH_UP = 2.0
DRAFTS_KEPT = timedelta(hours=12)
# Of one user: a program may preview all day, and each draft has up to MOST items.
MOST_DRAFTS = 20

# --- What people do -------------------------------------------------------------------------------------


def choose(
    verb: str, rows: QuerySet[Any, Any], *, user: User, chosen_by: str, cause: str = "", **arguments: Any
) -> BulkOperation:
    """Store the rows of a bulk operation: the ids that a query returns now. Nothing else happens yet.

    `cause` is the name of the one that all of them failed for. `arguments` are what the verb needs to know of the
    choice: the `step` that failed. Raises NotAllowed for no row.
    """
    chosen = verbs()[verb]
    require(user, chosen.permission)
    with short_transaction():
        drafts = BulkOperation.objects.filter(state=State.DRAFT)
        too_many = drafts.filter(asked_by=user).order_by("-id").values("pk")[MOST_DRAFTS - 1 :]
        old = drafts.filter(Q(asked_at__lt=ClockTimestamp() - DRAFTS_KEPT) | Q(pk__in=too_many))
        old = old.exclude(pk__in=Proposal.objects.open().filter(verb=Proposal.Verb.BULK).values("row"))
        # Locked first, so that a draft that somebody starts at this moment is kept.
        forgotten = list(old.select_for_update(skip_locked=True).values_list("pk", flat=True))
        BulkOperation.objects.filter(pk__in=forgotten).delete()
        made = BulkOperation.objects.create(
            verb=verb, arguments=arguments, chosen_by=chosen_by, cause=cause, selected=0, asked_by=user, pace=USUAL_PACE
        )
        try:
            sql, parameters = rows.query.get_compiler(connection=connection).as_sql()
        except EmptyResultSet:  # nothing was ticked
            raise NotAllowed("Nothing is chosen: no row matches.") from None
        made.selected = execute(
            f"""INSERT INTO workflows_bulkitem (operation_id, row, seen)
                SELECT %s, chosen.id, {chosen.seen} FROM {chosen.model._meta.db_table} chosen
                 WHERE chosen.id IN (SELECT * FROM ({sql}) ids LIMIT {MOST + 1}) ORDER BY chosen.id""",  # noqa: S608
            [made.pk, *parameters],
        )
        if not made.selected:
            raise NotAllowed("Nothing is chosen: no row matches.")
        if made.selected > MOST:
            raise NotAllowed(f"At most {MOST:,} at a time: choose fewer, by a filter.")
        made.save(update_fields=["selected"])
    return made


def alone(verb: str, user: User) -> int:
    """How many rows this user may decide on without a second person."""
    of = verbs()[verb]
    return MANY_ALONE if of.is_quiet or (user.has_perm(BULK) and not (of.takes_away or of.calls_again)) else ALONE


def usual_pace(verb: str) -> int:
    """The items a second at which it runs by default."""
    return FASTEST if verbs()[verb].is_quiet else USUAL_PACE


def why_four_eyes(bulk: BulkOperation, user: User) -> str:
    """Why this user needs a second person to decide on it; empty if they do not."""
    if bulk.selected > (most := alone(bulk.verb, user)):
        return f"a selection of more than {most} needs a second person"
    if again := charged_again_by(bulk, user):
        if is_needed_to_retry(*again):
            return of_person("patients are charged again, and that takes two people")
        if len(again) > ALONE:
            return f"{len(again)} are charged again, and more than {ALONE} of those need a second person"
    return ""


def charged_again_by(bulk: BulkOperation, user: User) -> set[int]:
    """The workflows that it would charge again, in the name of this user."""
    if not (verbs()[bulk.verb].charges_again and user.has_perm(CANCEL_PAID)):  # others charge nobody again
        return set()
    return {each.workflow_id for each in charged_again(*bulk.items.values_list("row", flat=True))}


def start(
    bulk_id: int, *, user: User, reason: str, pace: int = USUAL_PACE, four_eyes: bool = False, **arguments: Any
) -> str:
    """Start it in this user's name, or ask for approval if it is too much for one person. Return which, as a sentence.

    `four_eyes`: it needs approval in any case. `arguments` are the verb's: the user `to` whom tasks are assigned, for
    example.
    """
    require_reason(reason, "a bulk operation")
    if not 1 <= pace <= FASTEST:
        raise NotAllowed(f"The pace is between 1 and {FASTEST} a second.")
    with _locked(bulk_id, user, State.DRAFT) as bulk:
        if bulk.asked_by_id != user.pk:
            raise NotAllowed(f"{bulk.asked_by.get_username()} has chosen these; choose your own.")
        bulk.reason, bulk.pace, bulk.arguments = stated(reason), pace, {**bulk.arguments, **arguments}
        bulk.four_eyes = four_eyes or bool(why_four_eyes(bulk, user))
        bulk.state = State.ASKED if bulk.four_eyes else State.RUNNING
        bulk.asked_at = bulk.next_at = ClockTimestamp()
        record_for(bulk, user, "Asked for" if bulk.four_eyes else "Started", reason)
    return "You have asked for it. It starts when another user approves it." if bulk.four_eyes else "It has started."


def why_not_approve(bulk: BulkOperation, user: User) -> str:
    """Why this user cannot approve it, in a sentence; empty if they can."""
    if why := why_not_second(bulk.asked_by, user, bulk.asked_at):
        return why
    if not user.has_perm(BULK):
        return "Ask a support lead or an engineer to approve it."
    return _why_not_in_their_name(bulk)


def to_approve(user: User) -> QuerySet[BulkOperation]:
    """The bulk operations of other users that this one may approve, oldest first."""
    may = [name for name, verb in verbs().items() if user.has_perm(BULK) and user.has_perm(verb.permission)]
    asked = BulkOperation.objects.filter(state=State.ASKED, verb__in=may)
    own = count_as_one(F("asked_by"), Value(user.pk), F("asked_at"))
    return asked.exclude(own).order_by("asked_at", "id")


def approve(bulk_id: int, *, user: User, reason: str = "") -> str:
    """Start a bulk operation that another user has asked for."""
    with _locked(bulk_id, user, State.ASKED) as bulk:
        if refusal := why_not_approve(bulk, user):
            raise NotAllowed(refusal)
        bulk.state, bulk.approved_by, bulk.next_at = State.RUNNING, user, ClockTimestamp()
        record_for(bulk, user, "Approved", reason)
    return "It has started."


def pause(bulk_id: int, *, user: User, reason: str = "") -> None:
    """Stop after the current slice, until somebody resumes it."""
    with _locked(bulk_id, user, State.RUNNING) as bulk:
        bulk.state = State.PAUSED
        bulk.paused_why = f"{user.get_username()} has paused it. {stated(reason)}".strip()
        record_for(bulk, user, "Paused", reason)


def resume(bulk_id: int, *, user: User, reason: str = "") -> None:
    with _locked(bulk_id, user, State.PAUSED) as bulk:
        if refusal := _why_not_in_their_name(bulk):
            raise NotAllowed(refusal)
        bulk.state, bulk.paused_why, bulk.next_at = State.RUNNING, "", ClockTimestamp()
        record_for(bulk, user, "Resumed", reason)


def stop(bulk_id: int, *, user: User, reason: str = "") -> str:
    """Cancel the items that are left. Finished items stay as they are."""
    with _locked(bulk_id, user, State.ASKED, State.RUNNING, State.PAUSED) as bulk:
        bulk.state, bulk.ended_at = State.CANCELLED, ClockTimestamp()
        record_for(bulk, user, "Cancelled", reason)
        left = bulk.items.filter(outcome=Outcome.OPEN).count()
    return f"It is cancelled. {left} of {bulk.selected} were not touched."


def outcomes(*bulks: BulkOperation) -> dict[int, dict[str, int]]:
    """How many items of each operation are done, skipped, failed and open."""
    counted: dict[int, dict[str, int]] = {bulk.pk: dict.fromkeys(Outcome.values, 0) for bulk in bulks}
    items = BulkItem.objects.filter(operation__in=bulks).order_by()
    for bulk_id, outcome, number in items.values_list("operation", "outcome").annotate(Count("pk")):
        counted[bulk_id][outcome] = number
    return counted


@contextmanager
def _locked(bulk_id: int, user: User, *states: str) -> Iterator[BulkOperation]:
    """Lock a bulk operation for a user who may do the same to one row; save it afterwards. Checks its state."""
    with short_transaction("The workers carry out a slice of it just now; try again in a moment."):
        bulk = BulkOperation.objects.select_for_update(no_key=True).filter(pk=bulk_id, verb__in=verbs()).first()
        if bulk is None:
            raise NotAllowed("There is no such bulk operation.")
        require(user, verbs()[bulk.verb].permission)
        if bulk.state not in states:
            raise NotAllowed(f"That cannot be done now: it is {State(bulk.state).label.lower()}.")
        yield bulk
        bulk.save()
        forget_deaths(CHORE)


# --- What the workers do --------------------------------------------------------------------------------


def do_slice(after: int) -> Slice:
    """Carry out the next items of a due bulk operation: of the first after this id, so that all get a turn.

    A slice has only one item if the last one killed its worker: that shows which item does it. Operations with the
    verbs of a later release are left to its workers.
    """
    bulk = _next_due(after)
    if bulk is None:
        is_under_way = BulkOperation.objects.filter(state=State.RUNNING, verb__in=verbs()).exists()
        return Slice(0, rest=0.0 if is_under_way else 1.0)
    if refusal := _why_not_in_their_name(bulk):
        bulk.state, bulk.paused_why = State.PAUSED, refusal
        bulk.save()
        return Slice(1, bulk.pk)
    since = min(max(bulk.next_at, bulk.now - timedelta(seconds=CATCH_UP)), bulk.now)
    is_suspect = Chore.objects.filter(pk=CHORE, deaths__gt=0).exists()
    together = 0 if is_suspect else carry_out_together(bulk)
    allowed = 1 if is_suspect else int((bulk.now - since).total_seconds() * bulk.pace) + 1
    items = list(_open_items(bulk)[: allowed + 1])
    done = _carry_out_each(bulk, items[:allowed])
    bulk.next_at = since + timedelta(seconds=done / bulk.pace)
    if done == len(items):
        bulk.state, bulk.ended_at = State.DONE, ClockTimestamp()
    bulk.save()
    return Slice(together + done, bulk.pk)


def set_aside(after: int) -> int | None:
    """Mark the first open item of the operation after this id as failed, because it kills every worker.

    Returns the id of its bulk operation, so that the next one gets a turn.
    """
    if (bulk := _next_due(after)) is None or (item := _open_items(bulk).first()) is None:
        return None
    why = f"{DEATHS} workers in a row died while they carried it out. Look at their logs before you try it again."
    _end(item, Outcome.FAILED, why)
    logger.error("%s, %s: %s", bulk, item, why)
    return int(bulk.pk)


def _next_due(after: int) -> Any:
    """Lock the next due bulk operation after this id, and annotate it with `now`.

    They take turns, so that one that kills its worker does not keep the others waiting. A `next_at` more than a second
    ahead (the slowest pace) comes from a clock that was set back, and counts as due.
    """
    now = ClockTimestamp()
    running = BulkOperation.objects.filter(state=State.RUNNING, verb__in=verbs()).annotate(now=now)
    due = running.exclude(next_at__gt=now, next_at__lte=now + timedelta(seconds=1))
    in_turns = due.order_by(Case(When(pk__gt=after, then=0), default=1), "pk")
    # Workers may not read passwords: see `management.roles`.
    in_turns = in_turns.select_related("asked_by", "approved_by").defer("asked_by__password", "approved_by__password")
    return in_turns.select_for_update(no_key=True, skip_locked=True, of=("self",)).first()


def _open_items(bulk: BulkOperation) -> QuerySet[BulkItem]:
    return bulk.items.filter(outcome=Outcome.OPEN).order_by("id")


def _carry_out_each(bulk: BulkOperation, items: list[BulkItem]) -> int:
    """Carry out these items until the slice's time is over; return how many."""
    until = monotonic() + SLICE
    for number, item in enumerate(items, start=1):
        _carry_out(bulk, item)
        if monotonic() >= until:
            return number
    return len(items)


def _carry_out(bulk: BulkOperation, item: BulkItem) -> None:
    outcome, why = Outcome.DONE, ""
    try:
        with transaction.atomic(), item_of(bulk.pk):
            verbs()[bulk.verb].act(item, user=bulk.asked_by, reason=bulk.reason, **bulk.arguments)
    except NotAllowed as refusal:
        outcome, why = Outcome.SKIPPED, str(refusal)
    except Exception as error:
        if not connection.is_usable():
            raise
        outcome, why = Outcome.FAILED, f"An unforeseen error: {type(error).__name__}. The log says more."
        logger.error("%s, %s: %s", bulk, item, type(error).__name__, exc_info=error)
    _end(item, outcome, why)


def _end(item: BulkItem, outcome: BulkItem.Outcome, why: str) -> None:
    BulkItem.objects.filter(pk=item.pk).update(outcome=outcome, why=why, at=ClockTimestamp())


def _why_not_in_their_name(bulk: BulkOperation) -> str:
    """Why it cannot be carried out in the name of the user who asked for it; empty if it can."""
    user = bulk.asked_by
    if user.is_active and user.is_staff and user.has_perm(verbs()[bulk.verb].permission):
        return ""
    return f"{user.get_username()}, in whose name it is done, may not do this any more."
