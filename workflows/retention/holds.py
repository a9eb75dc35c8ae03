"""LEGAL HOLDS: what may not be deleted, for a reason, until a time; whoever asks for it, and whatever its age.

A hold on a search key is on all that have it, those that come later, too. What is emptied already has none.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from workflows.errors import NotAllowed
from workflows.models import Hold, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import PLACE_HOLD, require, require_reason, short_transaction, stated
from workflows.postgres.statements import fetch_all
from workflows.search import search_keys

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONGEST = timedelta(days=20 * 366)

# One lock for the whole database: what empties takes it together, a hold alone.
_LOCK = 0x686F6C64


def let_holds_wait() -> None:
    """Until the transaction ends nobody places a hold; what was placed before is seen by the next statement."""
    fetch_all("SELECT pg_advisory_xact_lock_shared(%s)", [_LOCK])


@sensitive_variables("email")
def place(*, user: User, reason: str, until: datetime, workflow_id: int | None = None, email: str = "") -> list[Hold]:
    """Place a hold on a workflow, or on all of an e-mail address; return it, under each of SEARCH_KEYS one."""
    require(user, PLACE_HOLD)
    require_reason(reason, "a legal hold")
    if not timezone.now() < until <= timezone.now() + LONGEST:
        raise NotAllowed("A legal hold ends in the future, within twenty years: place it again if it has to go on.")
    said = {"reason": stated(reason), "placed_by": user.get_username(), "until": until}
    with short_transaction("What is old is being deleted just now; try again in a moment."):
        fetch_all("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        if workflow_id is not None:
            row = Workflow.objects.filter(pk=workflow_id).only("emptied_at").first()
            if row is None or row.emptied_at:
                raise NotAllowed(f"Workflow {workflow_id} is not there, or what it was sent was deleted already.")
            return [Hold.objects.create(workflow=row, **said)]
        hashes = search_keys.hashes_of_address(email)
        if not hashes:
            raise NotAllowed("That is no e-mail address.")
        return [Hold.objects.create(hash=each, key_id=key_id, **said) for each, key_id in hashes.items()]


def lift(hold_id: int, *, user: User, reason: str) -> None:
    """End a hold now. What is old enough is deleted with the next slice."""
    require(user, PLACE_HOLD)
    require_reason(reason, "to lift a hold")
    lifted = {"lifted_by": user.get_username(), "lifted_reason": stated(reason), "until": ClockTimestamp()}
    if not Hold.objects.filter(pk=hold_id, until__gt=ClockTimestamp()).update(**lifted):
        raise NotAllowed("There is no such hold, or it has ended.")


def of_old_keys() -> int:
    """The holds by hashes of a key that does not write: once these hashes are removed, they hold nothing."""
    key_id = search_keys.keys()[0].id
    return Hold.objects.filter(until__gt=ClockTimestamp(), hash__isnull=False).exclude(key_id=key_id).count()
