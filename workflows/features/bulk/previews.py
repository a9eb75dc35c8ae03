"""WHAT A BULK OPERATION WOULD DO: to how many of its rows, why not to the others, and which money moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from workflows.features.bulk.operations import VERBS
from workflows.features.business_key import duplicates
from workflows.features.deferred_steps.operations import count_left
from workflows.models import BulkOperation, FollowUp, ManualTask, OutboxEvent, State, Workflow
from workflows.models.follow_up import GIVEN_UP
from workflows.models.workflow import UNACKNOWLEDGED
from workflows.operations import families
from workflows.operations.acknowledging import MONEY_HELD
from workflows.operations.guards import CANCEL_PAID
from workflows.operations.payments import (
    charged_again,
    charged_among,
    held,
    may_have_been_charged,
    sum_of,
    would_charge_again,
)
from workflows.operations.workflows import why_not_cancel, why_not_retry

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class Preview(NamedTuple):
    """To how many rows it `can` be done now, and to how many not, with the reason of each kind; and what moves.

    Each item is looked at again when its turn comes.
    """

    can: int
    cannot: list[tuple[int, str]]
    money: str = ""


# To which rows each verb applies. The other rows are counted by their state.
_UNDER_WAY = Exists(Workflow.objects.filter(pk=OuterRef("workflow_id"), status="PENDING"))
_GIVEN_UP = Q(status="COMPLETE", pk__in=FollowUp.objects.filter(GIVEN_UP).values("workflow"))
APPLIES: dict[str, Q] = {
    "retry": Q(emptied_at=None, status="FAILED", cancelled_at=None),
    families.VERB: Q(emptied_at=None, status="FAILED"),
    "run_now": Q(emptied_at=None, status="PENDING", invisible_until__gt=Now()),
    "cancel": Q(emptied_at=None, status="PENDING", compensating=False),
    "acknowledge": Q(emptied_at=None) & (UNACKNOWLEDGED | _GIVEN_UP),
    "assign": Q(_UNDER_WAY, state="open", expires_at__gt=Now()),
    "redeliver": Q(state=""),
    "discard": Q(state=""),
    "redeliver_event": Q(state="given_up"),
    "discard_event": Q(state__in=["given_up", ""]),
}


def preview(bulk: BulkOperation, user: User) -> Preview:
    if bulk.verb == "run_again":
        return _of_run_again(bulk)
    rows = VERBS[bulk.verb].model._default_manager.filter(pk__in=bulk.items.values("row"))
    applies = set(rows.filter(APPLIES[bulk.verb]).values_list("pk", flat=True))
    refused = [(ids, why) for ids, why in _refused(bulk.verb, applies, user) if ids]
    can = applies.difference(*(ids for ids, _ in refused))
    others = Counter(_others(bulk.verb, rows.exclude(pk__in=applies)) if len(applies) < bulk.selected else ())
    cannot = [(number, why) for why, number in sorted(others.items())]
    return Preview(len(can), cannot + [(len(ids), why) for ids, why in refused], _money(bulk.verb, can))


def _of_run_again(bulk: BulkOperation) -> Preview:
    counted = count_left(bulk.items.values_list("row", flat=True), bulk.arguments["step"])
    can, gone = counted.pop("", 0), bulk.selected - sum(counted.values())
    cannot = [(number, why) for why, number in sorted(counted.items())]
    return Preview(can, [*cannot, *([(gone - can, "deleted since")] if gone > can else [])])


def _others(verb: str, rows: QuerySet[Any]) -> Iterator[str]:
    """Why the verb does not apply, for each of these rows."""
    if rows.model is Workflow:
        for state, emptied_at in rows.with_state().values_list("state", "emptied_at"):  # type: ignore[attr-defined]
            is_done = verb == "acknowledge" and state == State.FAILED
            word = "acknowledged already" if is_done else State(state).label.lower()
            yield "what it was sent was deleted" if emptied_at else word
        return
    for state in rows.values_list("state", flat=True):
        if rows.model is ManualTask:
            yield "not open any more"
        else:
            yield OutboxEvent.State(state).label.lower() if rows.model is OutboxEvent else f"{state} already"


def _refused(verb: str, ids: Collection[int], user: User) -> Iterator[tuple[Collection[int], str]]:
    """Those of these to which this user may not do it, though the verb applies; the reason is the same for all."""
    may_charge = user.has_perm(CANCEL_PAID)
    if verb == "acknowledge":
        yield charged_among(ids), MONEY_HELD
    elif verb == "cancel" and not may_charge and (charged := may_have_been_charged(*ids)):
        yield charged, why_not_cancel(next(iter(charged)), user)
    elif verb == "retry":
        done = duplicates.done_by_another(*ids)
        for each in (done, set() if may_charge else would_charge_again(*ids) - done):
            if each:
                yield each, why_not_retry(next(iter(each)), user)


def _money(verb: str, ids: Collection[int]) -> str:
    """What is charged again, or may be given back; empty if nothing is."""
    found = charged_again(*ids) if verb == "retry" else held(*ids) if verb == "cancel" else []
    if not found:
        return ""
    charged = "is charged again" if verb == "retry" else "has been charged, or may have been"
    then = "it was refunded." if verb == "retry" else "it is given back where a step gives it back."
    return f"{sum_of(found)} {charged}, for {len({each.root for each in found})} of them: {then}"
