"""WHAT A BULK OPERATION WOULD DO: on how many of its rows, on which it would be refused, and which money moves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from workflows.models import BulkOperation, FollowUp, ManualTask, OutboxEvent, State, UndeliveredMessage, Workflow
from workflows.models.follow_up import GIVEN_UP
from workflows.models.workflow import UNACKNOWLEDGED
from workflows.operations.acknowledging import MONEY_HELD
from workflows.operations.amounts import total
from workflows.operations.guards import CANCEL_PAID
from workflows.operations.payments import charged_among, may_have_been_charged, would_charge_again
from workflows.operations.workflows import why_not_cancel, why_not_retry

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True)
class Preview:
    """How many rows it `can` be done to; how many not, with the reason of each kind; and what moves, in sentences.

    It is what holds now. Each item is looked at again when its turn comes.
    """

    can: int
    cannot: list[tuple[int, str]] = field(default_factory=list)
    money: list[str] = field(default_factory=list)


def preview(bulk: BulkOperation, user: User) -> Preview:
    ids = bulk.items.values("row")
    if bulk.verb in ("redeliver", "discard"):
        return _of_messages(UndeliveredMessage.objects.filter(pk__in=ids))
    if bulk.verb in ("redeliver_event", "discard_event"):
        states = ["given_up"] if bulk.verb == "redeliver_event" else ["given_up", ""]
        return _of_events(OutboxEvent.objects.filter(pk__in=ids), states)
    if bulk.verb == "assign":
        can = ManualTask.objects.open().filter(pk__in=ids, expires_at__gt=Now()).count()
        return Preview(can, [(bulk.selected - can, "not open any more")] if can < bulk.selected else [])
    rows, (applies, of) = Workflow.objects.filter(pk__in=ids), _OF[bulk.verb]
    shown = of(rows.filter(applies), user)
    is_all = shown.can + sum(number for number, _ in shown.cannot) == bulk.selected
    others = [] if is_all else _in_other_states(rows.exclude(applies))
    return replace(shown, cannot=[*others, *shown.cannot])


# Of each verb: to which rows it applies, and what becomes of these.
_FAILED, _UNDER_WAY = Q(status="FAILED", cancelled_at=None), Q(status="PENDING", compensating=False)
_GIVEN_UP = Q(status="COMPLETE", pk__in=FollowUp.objects.filter(GIVEN_UP).values("workflow"))


def _of_retry(rows: QuerySet[Workflow], user: User) -> Preview:
    failed = set(rows.values_list("pk", flat=True))
    again = would_charge_again(*failed)
    barred = set() if user.has_perm(CANCEL_PAID) else again
    return Preview(len(failed - barred), _barred(barred, user, why_not_retry), list(_charged_again(again - barred)))


def _charged_again(again: Collection[int]) -> Iterator[str]:
    if again:
        yield f"{total(again)} is charged again, for {len(again)} of them: it was refunded."
    else:
        yield "Nothing that was refunded is charged again."
    yield "What is on record is not charged a second time; what was not charged yet is, when its step is reached."


def _of_cancel(rows: QuerySet[Workflow], user: User) -> Preview:
    pending = set(rows.values_list("pk", flat=True))
    charged = may_have_been_charged(*pending)
    barred = set() if user.has_perm(CANCEL_PAID) else charged
    returned = charged - barred
    money = (
        f"{total(returned)} has been charged, or may have been, for {len(returned)} of them: it is given back."
        if returned
        else "Nobody has been charged, so nothing is given back."
    )
    return Preview(len(pending - barred), _barred(barred, user, why_not_cancel), [money])


def _of_run_now(rows: QuerySet[Workflow], user: User) -> Preview:
    return Preview(rows.count(), money=["No failure is forgotten: one that fails again has failed again."])


def _of_acknowledge(rows: QuerySet[Workflow], user: User) -> Preview:
    left = rows.filter(UNACKNOWLEDGED).values_list("pk", flat=True)
    held, of = len(charged_among(left)), dict(rows.order_by().values_list("status").annotate(Count("pk")))
    done = of.get("FAILED", 0) - len(left)
    cannot = [(number, why) for number, why in ((done, "acknowledged already"), (held, MONEY_HELD)) if number]
    can = len(left) + of.get("COMPLETE", 0) - held
    return Preview(can, cannot, ["Nothing is called, refunded or reversed."])


def _of_messages(rows: QuerySet[UndeliveredMessage]) -> Preview:
    counted = dict(rows.order_by().values_list("state").annotate(Count("pk")))
    can = counted.pop("", 0)
    settled = [(number, f"{state} already") for state, number in sorted(counted.items())]
    return Preview(can, settled)


def _of_events(rows: QuerySet[OutboxEvent], states: Collection[str]) -> Preview:
    counted = dict(rows.order_by().values_list("state").annotate(Count("pk")))
    can = sum(counted.pop(state, 0) for state in states)
    cannot = [(number, OutboxEvent.State(state).label.lower()) for state, number in sorted(counted.items())]
    return Preview(can, cannot)


_OF: dict[str, tuple[Q, Callable[[QuerySet[Workflow], User], Preview]]] = {
    "retry": (_FAILED, _of_retry),
    "cancel": (_UNDER_WAY, _of_cancel),
    "run_now": (Q(status="PENDING", invisible_until__gt=Now()), _of_run_now),
    "acknowledge": (_FAILED | _GIVEN_UP, _of_acknowledge),
}


def _in_other_states(rows: QuerySet[Workflow]) -> list[tuple[int, str]]:
    counted = rows.with_state().order_by().values_list("state").annotate(number=Count("pk"))  # type: ignore[attr-defined]
    return [(number, State(state).label.lower()) for state, number in sorted(counted)]


def _barred(barred: Collection[int], user: User, why_not: Callable[[int, User], str]) -> list[tuple[int, str]]:
    """What this user may not do to these, though somebody else may: the reason is the same for all."""
    return [(len(barred), why_not(next(iter(barred)), user))] if barred else []
