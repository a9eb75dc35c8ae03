"""BULK VERBS: what can be done to many rows at once; features bring them (`Extension.bulk_verbs`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import Model, Q, QuerySet, TextChoices

from workflows.extension import installed
from workflows.models import BulkItem, BulkOperation, State, Workflow

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# How many rows one bulk operation may have: as far as lists count.
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


# Gets an item, then the user, the reason and the verb's arguments by name.
Act = Callable[..., object]
# Some of the rows to which this user may not do it, and why: the reason is the same for all of them.
Refused = Iterable[tuple[Collection[int], str]]


def seen(item: BulkItem) -> list[int]:
    return [] if item.seen is None else [item.seen]


def on_its_row(operation: Callable[..., object]) -> Act:
    return lambda item, **who: operation(item.row, **who)


def by_state(rows: QuerySet[Any], *, failed: str = "") -> Iterator[str]:
    """Why a verb does not apply to each of these workflows: by its state; `failed` is another word for that one."""
    for state, emptied_at in rows.with_state().values_list("state", "emptied_at"):  # type: ignore[attr-defined]
        word = failed if failed and state == State.FAILED else State(state).label.lower()
        yield "what it was sent was deleted" if emptied_at else word


def _nobody(ids: Collection[int], user: User) -> Refused:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkVerb:
    """An operation that can be done to many rows of `model`, which people call `what`.

    - `label`: on the button of a list; empty for one that no list offers.
    - `act` carries it out on an item. `seen` is SQL for what the user was shown of a row `chosen`: the operation
      refuses one that has changed since.
    - `takes_away`: a patient loses something by it; `calls_again`: it calls a service that has refused it. One person
      may decide on fewer rows of either. `is_quiet`: it calls no service, so whoever may do it to one may do it to
      many, and at once. `charges_again`: a charge that was given back is made again.
    - Before: `applies`, to which rows; `why_not` the others, a reason for each; `refused`, to which of those that it
      applies to this user may not do it; `money` that moves, a sentence. `counts` stands in place of these: how many,
      by why not, under an empty text those to which it can be done.
    - In words: its `noun`, what it `did` to each row, and `how`; `done`, what has happened to an item at once, where
      `did` would promise what comes of it.
    - After: `became` is an expression over the items, with `annotations`, for what became of each; None for a verb
      that is finished at once. `aim`: what it is for. `otherwise`: other words than usual for what became of an item.
    - To start it: `asks_colleague`, whom; `about_reason`, what the reason should say. In a shell it chooses among
      `failures`, or what is `under way`, as in its `examples`; empty for one that a shell does not offer.
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
    seen: str = "NULL"
    takes_away: bool = False
    is_quiet: bool = False
    calls_again: bool = False
    charges_again: bool = False
    applies: Q = field(default_factory=Q)
    why_not: Callable[[QuerySet[Any]], Iterable[str]] = by_state
    refused: Callable[[Collection[int], User], Refused] = _nobody
    money: Callable[[Collection[int]], str] = lambda ids: ""
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


def verbs() -> dict[str, BulkVerb]:
    """Those of this release, by name."""
    return {verb.name: verb for each in installed() for verb in each.bulk_verbs}
