"""LEGAL HOLDS: what may not be deleted until a time, whatever its age, and even if a person asks for an erasure.

A hold on a search key covers all workflows that have it, also later ones. Emptied workflows have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from workflows.definition import definitions
from workflows.errors import NotAllowed
from workflows.models import Hold, SearchKeyHash, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import PLACE_HOLD, require, require_reason, short_transaction, stated
from workflows.postgres.statements import fetch_all
from workflows.search import search_keys

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONGEST = timedelta(days=20 * 366)

# One lock for the whole database: emptying shares it, placing a hold takes it alone.
_LOCK = 0x686F6C64


def let_holds_wait() -> None:
    """Keep new holds from being placed until the transaction ends. Later statements see all earlier holds."""
    fetch_all("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])


def place(workflow_id: int, *, user: User, reason: str, until: datetime, of_person: bool = False) -> list[Hold]:
    """Place a hold on a workflow, or on its e-mail address (one hold for each of SEARCH_KEYS). Return the holds."""
    with _placing(user, reason, until) as said:
        row = Workflow.objects.filter(pk=workflow_id).first()
        if row is None or row.emptied_at:
            raise NotAllowed(f"Workflow {workflow_id} is not there, or what it was sent was deleted already.")
        if not of_person:
            return [Hold.objects.create(workflow=row, **said)]
        if not (hashes := addresses_in(row.workflow_type, row.payload)):
            raise NotAllowed("It has no e-mail address: hold it alone.")
        return [Hold.objects.create(hash=each, key_id=key_id, **said) for each, key_id in hashes.items()]


def extend(hold_id: int, *, user: User, reason: str, until: datetime) -> None:
    """Place another hold on the same, with a later end. The first stays as it is."""
    with _placing(user, reason, until) as said:
        held = Hold.objects.filter(pk=hold_id, until__gt=ClockTimestamp()).first()
        if held is None:
            raise NotAllowed("There is no such hold, or it has ended.")
        if until <= held.until:
            raise NotAllowed("It is held for as long as that already.")
        Hold.objects.create(workflow_id=held.workflow_id, hash=held.hash, key_id=held.key_id, **said)


def addresses_in(workflow_type: str, payload: Mapping[str, Any]) -> dict[bytes, int]:
    """The hashes of the e-mail address in a payload, each with its key's id."""
    definition = definitions().get(workflow_type)
    return search_keys.hashes_of_addresses_in(definition, payload) if definition else {}


@contextmanager
def _placing(user: User, reason: str, until: datetime) -> Iterator[dict[str, Any]]:
    """A transaction in which nothing is being deleted. Yields the fields that all holds have."""
    require(user, PLACE_HOLD)
    require_reason(reason, "a legal hold")
    if not timezone.now() < until <= timezone.now() + LONGEST:
        raise NotAllowed("A legal hold ends in the future, within twenty years: extend it if it has to go on.")
    with short_transaction("What is old is being deleted just now; try again in a moment."):
        fetch_all("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        yield {"reason": stated(reason), "placed_by": user.get_username(), "until": until}


def on(workflow_id: int) -> QuerySet[Hold]:
    """The holds that are on a workflow now, by its id or by a search key."""
    keyed = SearchKeyHash.objects.filter(hash=OuterRef("hash"), workflow_id=workflow_id)
    by_old = Q(hash__in=held_by_an_old_key([workflow_id]).get(workflow_id, ()))
    is_on = Q(workflow_id=workflow_id) | Exists(keyed) | by_old
    return Hold.objects.filter(is_on, until__gt=ClockTimestamp()).order_by("id")


def lift(hold_id: int, *, user: User, reason: str) -> None:
    """End a hold now. The next slice deletes what is old enough."""
    require(user, PLACE_HOLD)
    require_reason(reason, "to lift a hold")
    lifted = {"lifted_by": user.get_username(), "lifted_reason": stated(reason), "until": ClockTimestamp()}
    if not Hold.objects.filter(pk=hold_id, until__gt=ClockTimestamp()).update(**lifted):
        raise NotAllowed("There is no such hold, or it has ended.")


def of_old_keys() -> list[datetime]:
    """The ends of the holds whose hash was made with an older key."""
    return [until for _, until in _old()]


def _old() -> list[tuple[bytes, datetime]]:
    now = Hold.objects.filter(until__gt=ClockTimestamp(), hash__isnull=False)
    rows = now.exclude(key_id=search_keys.keys()[0].id).values_list("hash", "until")
    return [(bytes(hash_ or b""), until) for hash_, until in rows]


def held_by_an_old_key(ids: Collection[int]) -> dict[int, set[bytes]]:
    """The workflows whose address only a hold with an older key's hash covers, with these hashes.

    A workflow that came after the newer key has no hashes of the older one: they are made from its payload.
    """
    old = {hash_ for hash_, _ in _old()}
    rows = Workflow.objects.filter(pk__in=ids).values_list("pk", "workflow_type", "payload") if old else []
    found = {
        pk: old & {*search_keys.hashes_of_addresses_in(definition, payload)}
        for pk, workflow_type, payload in rows
        if (definition := definitions().get(workflow_type))
    }
    return {pk: hashes for pk, hashes in found.items() if hashes}
