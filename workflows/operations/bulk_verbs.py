"""BULK VERBS: what can be done to many rows at once. Features add them (`Extension.bulk_verbs`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.db.models import Model, Q, QuerySet, TextChoices

from workflows.extension import installed
from workflows.models import BulkItem, BulkOperation, State, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.operations.guards import item_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = logging.getLogger(__name__)

# The most rows of a bulk operation: the limit of counts in lists.
MOST = 10_000


class Became(TextChoices):
    """What became of an item after the operation was carried out on it."""

    COMPLETE = "complete"
    FOLLOWED_UP = "followed_up"
    SENT = "sent"
    UNDER_WAY = "under_way"
    UNDECIDED = "undecided"
    REVERSING = "reversing"
    FAILED = "failed"
    GIVEN_UP = "given_up"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    AGAIN = "again"
    DELETED = "deleted"


# Called with an item; and with the user, the reason and the verb's arguments by name.
Act = Callable[..., object]
# Rows to which this user may not do it, each group with its reason.
Refused = Iterable[tuple[Collection[int], str]]


def seen(item: BulkItem) -> list[int]:
    return [] if item.seen is None else [item.seen]


def on_its_row(operation: Callable[..., object]) -> Act:
    return lambda item, **who: operation(item.row, **who)


def by_state(rows: QuerySet[Any], *, failed: str = "") -> Iterator[str]:
    """Why a verb does not apply to each of these workflows: its state. `failed` replaces the word for that state."""
    for state, emptied_at in rows.with_state().values_list("state", "emptied_at"):  # type: ignore[attr-defined]
        word = failed if failed and state == State.FAILED else State(state).label.lower()
        yield "what it was sent was deleted" if emptied_at else word


def _nobody(ids: Collection[int], user: User) -> Refused:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkVerb:
    """An operation that can be done to many rows of `model`, which people call `what`.

    - `label`: the button in a list; empty if no list offers it.
    - `act` carries it out on an item. `seen` is SQL for what the user was shown of a row `chosen`: the operation
      refuses a row that has changed since.
    - `together`, if there is one, carries it out on many in a few statements, whatever the pace: on items about which
      nothing has to be asked. It returns their rows; the others wait for `act`.
    - `takes_away`: a patient loses something. `calls_again`: it calls a service that has refused. One person may decide
      on fewer rows of these. `is_quiet`: it calls no service, so a user who may do it to one row may do it to many, at
      once. `charges_again`: it makes refunded charges again.
    - Before: the rows that it `applies` to; `why_not`, a reason for each of the others; `refused`, the rows to which
      this user may not do it; `money`, a sentence about money that moves; `warns`, one about those that it will not
      help. Or `counts` instead of all these: a number for each reason, and under an empty text the number that it can
      be done to.
    - In words: its `noun`, what it `did` to a row, and `how`. `done` says what happened to an item at once, if `did`
      would promise the result.
    - After: `became` is an expression over the items, with `annotations`, for the result of each; None if the verb has
      no later result. `aim`: the good result. `otherwise`: its own words for results.
    - To start it: `asks_colleague` asks whom, `about_reason` says what the reason should contain. A shell chooses
      `among` failures, or workflows under way, as in `examples`; empty if a shell does not offer it.
    """

    name: str
    permission: str
    act: Act
    noun: str
    did: str
    how: Sequence[str]
    model: type[Model] = Workflow
    what: str = "workflow"
    label: str = ""
    together: Callable[..., Collection[int]] | None = None
    seen: str = "NULL"
    takes_away: bool = False
    is_quiet: bool = False
    calls_again: bool = False
    charges_again: bool = False
    applies: Q = field(default_factory=Q)
    why_not: Callable[[QuerySet[Any]], Iterable[str]] = by_state
    refused: Callable[[Collection[int], User], Refused] = _nobody
    money: Callable[[Collection[int]], str] = lambda ids: ""
    warns: Callable[[Collection[int]], str] = lambda ids: ""
    counts: Callable[[BulkOperation], dict[str, int]] | None = None
    done: str = ""
    became: Callable[[], Any] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    aim: str = ""
    otherwise: Mapping[str, str] = field(default_factory=dict)
    asks_colleague: bool = False
    about_reason: str = ""
    among: str = ""
    examples: Sequence[str] = ()


def carry_out_together(bulk: BulkOperation) -> int:
    """Carry out items in a few statements, if the verb can; return how many. If that fails, each has its own turn."""
    if (together := verbs()[bulk.verb].together) is None:
        return 0
    try:
        with transaction.atomic(), item_of(bulk.pk):
            rows = together(bulk.pk, user=bulk.asked_by, reason=bulk.reason)
            return bulk.items.filter(row__in=rows).update(outcome=BulkItem.Outcome.DONE, at=ClockTimestamp())
    except Exception as error:
        if not connection.is_usable():
            raise
        logger.error("%s, many together: %s", bulk, type(error).__name__, exc_info=error)
        return 0


def verbs() -> dict[str, BulkVerb]:
    """The verbs of this release, by name."""
    return {verb.name: verb for each in installed() for verb in each.bulk_verbs}
