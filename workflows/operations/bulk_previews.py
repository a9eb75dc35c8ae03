"""WHAT A BULK OPERATION WOULD DO: on how many of its rows, on which it would be refused, and which money moves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Now

from workflows.features.business_key import duplicates
from workflows.models import BulkOperation, FollowUp, ManualTask, OutboxEvent, State, UndeliveredMessage, Workflow
from workflows.models.follow_up import GIVEN_UP
from workflows.models.workflow import UNACKNOWLEDGED
from workflows.operations.acknowledging import MONEY_HELD
from workflows.operations.guards import CANCEL_PAID
from workflows.operations.payments import Found, charged_again, charged_among, held, sum_of
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
    chosen, (applies, of) = Workflow.objects.filter(pk__in=ids), _OF[bulk.verb]
    rows = chosen.filter(emptied_at=None)
    shown = of(rows.filter(applies), user)
    is_all = shown.can + sum(number for number, _ in shown.cannot) == bulk.selected
    others = [] if is_all else [*_emptied(chosen), *_in_other_states(rows.exclude(applies))]
    return replace(shown, cannot=[*others, *shown.cannot])


def _emptied(chosen: QuerySet[Workflow]) -> list[tuple[int, str]]:
    number = chosen.filter(emptied_at__isnull=False).count()
    return [(number, "what it was sent was deleted")] if number else []


# Of each verb: to which rows it applies, and what becomes of these.
_FAILED, _UNDER_WAY = Q(status="FAILED", cancelled_at=None), Q(status="PENDING", compensating=False)
_GIVEN_UP = Q(status="COMPLETE", pk__in=FollowUp.objects.filter(GIVEN_UP).values("workflow"))


def _of_retry(rows: QuerySet[Workflow], user: User) -> Preview:
    failed = set(rows.values_list("pk", flat=True))
    again = charged_again(*failed)
    done = duplicates.done_by_another(*failed)
    barred = set() if user.has_perm(CANCEL_PAID) else _roots(again) - done
    left = [each for each in again if each.root not in barred | done]
    cannot = [*_barred(done, user, why_not_retry), *_barred(barred, user, why_not_retry)]
    return Preview(len(failed - barred - done), cannot, list(_charged_again(left)))


def _charged_again(again: Collection[Found]) -> Iterator[str]:
    if again:
        yield f"{sum_of(again)} is charged again, for {len(_roots(again))} of them: it was refunded."
    else:
        yield "Nothing that was refunded is charged again."
    yield "What is on record is not charged a second time; what was not charged yet is, when its step is reached."


def _of_cancel(rows: QuerySet[Workflow], user: User) -> Preview:
    pending = set(rows.values_list("pk", flat=True))
    charged = held(*pending)
    barred = set() if user.has_perm(CANCEL_PAID) else _roots(charged)
    left = [each for each in charged if each.root not in barred]
    return Preview(len(pending - barred), _barred(barred, user, why_not_cancel), list(_given_back(left)))


def _given_back(charged: Collection[Found]) -> Iterator[str]:
    if not charged:
        yield "No charge is on record, so nothing is given back."
    for is_reversible, becomes in ((True, "it is given back"), (False, "nothing gives it back")):
        if those := [each for each in charged if each.is_reversible == is_reversible]:
            of = f"{len(_roots(those))} of them"
            yield f"{sum_of(those)} has been charged, or may have been, for {of}: {becomes}."


def _roots(found: Collection[Found]) -> set[int]:
    return {each.root for each in found}


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
