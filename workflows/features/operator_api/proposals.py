"""PROPOSALS: an API key asks for an act, and another person than the key's approves or refuses it in the console.

The approval carries it out in one transaction, by the operation that the console's own button calls, in the name of the
user who approves. The history names the three: proposer, key and approver. A proposal is bound to what was seen; it
lapses after a day; and a trigger in the database holds that two people are behind it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from django.contrib.admin.models import LogEntry
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.db.models import F, Q, QuerySet, Value
from django.utils import timezone

from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.operator_api.acts import ACTS, Act, version_of
from workflows.models import ApiKey, Event, Proposal, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.deputy import count_as_one
from workflows.operations import answers
from workflows.operations.bulk_verbs import verbs
from workflows.operations.guards import (
    BULK,
    as_proposed,
    record_event,
    record_for,
    require_reason,
    short_transaction,
    stated,
    why_not_second,
)
from workflows.operations.two_people import YOUNGEST

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LAPSES = timedelta(hours=24)
# Between the clocks of a decision and of the log that it is written to.
AT_ONCE = timedelta(minutes=1)
# Open ones of a key: more would be no help to those who decide them.
MOST_OPEN = 50
CHANGED = "It has changed since this was proposed, so nobody can approve it: do not approve it, and look at it."
MEANWHILE = "An account was closed or changed at this moment, or it has lapsed: nothing is done. Look at it again."
Verb, State = Proposal.Verb, Proposal.State


class KeyReused(Exception):
    """The person has used this idempotency key for another proposal."""


class NotFound(Exception):
    """There is no such row."""


class Changed(NotAllowed):
    """The row is not as the client has seen it."""


# --- Proposing ------------------------------------------------------------------------------------------


def propose(
    verb: Proposal.Verb, row_id: int, *, key: ApiKey, user: User, reason: str, version: str, idempotency_key: UUID
) -> tuple[Proposal, bool]:
    """Ask for an act in the name of the key's person; return the proposal, and whether it was made before.

    `version` is that of the row as the client has seen it. Raises PermissionDenied, NotAllowed, NotFound and KeyReused.
    """
    require_reason(reason, "a proposal")
    if made := _made(verb, row_id, user, version, idempotency_key):
        return made, True
    act = ACTS[verb]
    row = act.find(row_id)
    if row is None:
        raise NotFound
    if not act.is_for(row, user):
        raise PermissionDenied
    seen = act.seen(row)
    if version_of(seen) != version:
        raise Changed("It has changed since you looked at it: read it again.")
    if refusal := act.why_not(row, user) or act.why_not_propose(row, user):
        raise NotAllowed(refusal)
    workflow_id = row.pk if isinstance(row, Workflow) else getattr(row, "workflow_id", None)
    reason = answers.without_values(workflow_id, stated(reason))
    try:
        with short_transaction():
            if Proposal.objects.open().filter(api_key=key).count() >= MOST_OPEN:
                raise NotAllowed(f"{MOST_OPEN} proposals of your key wait already: withdraw some, or wait.")
            made = Proposal.objects.create(
                verb=verb,
                row=row_id,
                workflow_id=workflow_id,
                seen=seen,
                reason=reason,
                api_key=key,
                asked_by=user,
                lapses_at=ClockTimestamp() + LAPSES,
                idempotency_key=idempotency_key,
            )
            _record(made, Event.Kind.PROPOSED, user, "Proposed", reason)
    except IntegrityError as error:
        return _instead(error, verb, row_id, user, version, idempotency_key), True
    return Proposal.objects.select_related("asked_by", "api_key").get(pk=made.pk), False


def _made(verb: Proposal.Verb, row_id: int, user: User, version: str, idempotency_key: UUID) -> Proposal | None:
    """The proposal that the same request has made before. Raises KeyReused if it was another request."""
    rows = Proposal.objects.select_related("asked_by", "api_key", "decided_by")
    found = rows.filter(asked_by=user, idempotency_key=idempotency_key).first()
    if found and (found.verb, found.row, version_of(found.seen)) != (verb, row_id, version):
        raise KeyReused
    return found


def _instead(
    error: IntegrityError, verb: Proposal.Verb, row_id: int, user: User, version: str, idempotency_key: UUID
) -> Proposal:
    """The proposal of the same request that was made at this moment. Raises NotAllowed if somebody else's is open."""
    cause = error.__cause__
    name = cause.diag.constraint_name if isinstance(cause, psycopg.Error) else ""
    if name == "proposal_idempotency_key" and (made := _made(verb, row_id, user, version, idempotency_key)):
        return made
    if name == "proposal_one_open":
        raise NotAllowed("That is proposed already, and waits for a person.") from None
    raise error


def _record(asked: Proposal, kind: Event.Kind, user: User, what: str, reason: str) -> None:
    """Write to the history of its workflow, or to the log of what it is about."""
    told: dict[str, Any] = {"proposes": asked.verb, "api_key": asked.api_key.name, "proposal": asked.pk}
    if user.pk != asked.asked_by_id:
        told["proposed_by"] = asked.asked_by.get_username()
    if asked.workflow_id:
        if asked.workflow_id != asked.row:
            told["task"] = asked.row
        record_event(asked.workflow_id, kind, user, reason=reason, **told)
    elif row := ACTS[Verb(asked.verb)].find(asked.row):
        record_for(row, user, f"{what}, by the API key {asked.api_key.name}", reason)


# --- Deciding -------------------------------------------------------------------------------------------


def approve(proposal_id: int, *, user: User, seen: Collection[int], reason: str = "") -> str:
    """Carry out what was proposed, in this user's name; return what happens, in a sentence."""
    with short_transaction():
        asked = _open(proposal_id, seen)
        act, row = _act_and_row(asked)
        if refusal := _why_not(asked, act, row, user):
            if refusal != CHANGED:
                raise NotAllowed(refusal)
            _decide(asked, State.STALE)
            done = None
        else:
            _decide(asked, State.APPROVED, user)
            with as_proposed(proposed_by=asked.asked_by.get_username(), key=asked.api_key.name, note=reason):
                done = act.carry_out(asked, user) or "It is done."
    if done is None:
        raise NotAllowed(CHANGED)
    return done


def close(proposal_id: int, *, user: User, seen: Collection[int], reason: str) -> str:
    """Refuse a colleague's proposal, or withdraw one's own; return which, as a sentence."""
    require_reason(reason, "that")
    with short_transaction():
        asked = _open(proposal_id, seen)
        if refusal := why_not_close(asked, user):
            raise NotAllowed(refusal)
        is_own = asked.asked_by_id == user.pk
        _decide(asked, State.WITHDRAWN if is_own else State.REFUSED, user)
        kind = Event.Kind.PROPOSAL_WITHDRAWN if is_own else Event.Kind.PROPOSAL_REFUSED
        _record(asked, kind, user, f"Proposal {'withdrawn' if is_own else 'refused'}", reason)
    return f"It is {'withdrawn' if is_own else 'refused'}: nothing happens."


def _open(proposal_id: int, seen: Collection[int]) -> Proposal:
    """The open proposal that the user was shown, locked until the transaction ends."""
    rows = Proposal.objects.filter(pk=proposal_id, pk__in=seen)
    # Locked first: after waiting PostgreSQL reads this row again, but not the joined rows.
    rows.select_for_update(no_key=True).values("pk").first()
    asked = rows.select_related("asked_by", "api_key", "decided_by").first()
    if asked is None:
        raise NotAllowed("There is no such proposal.")
    if refusal := why_over(asked):
        raise NotAllowed(refusal)
    return asked


def _decide(asked: Proposal, state: Proposal.State, user: User | None = None) -> None:
    try:
        Proposal.objects.filter(pk=asked.pk).update(state=state, decided_by=user)  # the trigger sets the time
    except IntegrityError as error:
        if isinstance(error.__cause__, psycopg.errors.CheckViolation) and not error.__cause__.diag.constraint_name:
            raise NotAllowed(MEANWHILE) from None  # the trigger refuses what has changed since `_why_not` has looked
        raise


def why_closed(asked: Proposal) -> str:
    """Why it was refused or withdrawn, as its person said; empty if it was neither, or that is deleted."""
    if asked.state not in (State.REFUSED, State.WITHDRAWN) or not asked.decided_at:
        return ""
    if asked.workflow_id:
        ends = (Event.Kind.PROPOSAL_REFUSED, Event.Kind.PROPOSAL_WITHDRAWN)
        told = Event.objects.filter(workflow=asked.workflow_id, kind__in=ends, detail__proposal=asked.pk)
        return "".join(told.order_by("id").values_list("detail__reason", flat=True)[:1])
    # The log, which has no number of the proposal, is written in the transaction that decides it.
    what = f"Proposal {asked.state}, by the API key {asked.api_key.name}. "
    at = (asked.decided_at - AT_ONCE, asked.decided_at + AT_ONCE)
    logged = LogEntry.objects.filter(user=asked.decided_by_id, object_id=str(asked.row), action_time__range=at)
    found = logged.filter(change_message__startswith=what).order_by("-id").values_list("change_message", flat=True)
    return "".join(found[:1]).removeprefix(what)


# --- Why not --------------------------------------------------------------------------------------------


def why_over(asked: Proposal) -> str:
    """Why nobody decides it any more; empty if somebody can."""
    if asked.state == State.STALE:
        return CHANGED
    if asked.state == State.LAPSED or (asked.state == State.ASKED and asked.lapses_at <= timezone.now()):
        return "Nobody has decided it in a day: it can be proposed again if it is still needed."
    if asked.state != State.ASKED:
        by = asked.decided_by.get_username() if asked.decided_by else "Somebody"
        return f"{by} has decided it already: it is {asked.get_state_display().lower()}."
    return ""


def why_not_approve(asked: Proposal, user: User) -> str:
    """Why this user may not approve it, in a sentence; empty if they may."""
    return why_over(asked) or _why_not(asked, *_act_and_row(asked), user)


def why_not_close(asked: Proposal, user: User) -> str:
    """Why this user may neither refuse nor withdraw it; empty if they may."""
    act, row = _act_and_row(asked)
    if asked.asked_by_id == user.pk or row is None or act.is_for(row, user):
        return ""
    return "Somebody who may do it themselves refuses it: ask a support lead."


def _act_and_row(asked: Proposal) -> tuple[Act, Any]:
    act = ACTS[Verb(asked.verb)]
    return act, act.find(asked.row)


def _why_not(asked: Proposal, act: Act, row: Any, user: User) -> str:
    if refusal := why_not_second(asked.asked_by, user, asked.asked_at):
        return refusal
    if user.date_joined > timezone.now() - YOUNGEST:
        return "Your account is less than a day old: ask a colleague."
    if row is None:
        return CHANGED
    if not act.is_for(row, user):
        return "You may not do this yourself, so you may not approve it: ask a support lead."
    name = asked.asked_by.get_username()
    if not (asked.asked_by.is_active and asked.asked_by.is_staff and act.is_for(row, asked.asked_by)):
        return f"{name}, behind whose key it was proposed, may not do this any more: do not approve it."
    if asked.api_key.revoked_at:
        return "The API key that has proposed it is revoked: do not approve it."
    return CHANGED if act.seen(row) != asked.seen else act.why_not(row, user)


def to_approve(user: User) -> QuerySet[Proposal]:
    """The proposals of other people's keys that this user may approve, oldest first."""
    # What this user may approve takes ten times as long to plan as to see that nothing is proposed.
    if not Proposal.objects.open().exists():
        return Proposal.objects.none()
    of_workflows = {Verb.RETRY: operations.RETRY, Verb.CANCEL: operations.CANCEL}
    may = Q(verb__in=[verb for verb, permission in of_workflows.items() if user.has_perm(permission)])
    may |= Q(verb__in=(Verb.APPROVE, Verb.REJECT), row__in=operations.decidable(user).values("pk"))
    if user.has_perm(BULK) and any(user.has_perm(each.permission) for each in verbs().values()):
        may |= Q(verb=Verb.BULK)
    own = count_as_one(F("asked_by"), Value(user.pk), F("asked_at"))
    asked = Proposal.objects.open().filter(may).exclude(own)
    return asked.select_related("asked_by", "api_key").order_by("asked_at", "id")
