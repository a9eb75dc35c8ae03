"""AUDIT: who did what, and who looked at whom, newest first, merged from several tables.

Each table is read by its own index, after a position `(time, rank of the table, id)`. So page 200 costs as much as the
first (docs/adr/0027).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from heapq import merge
from typing import Any, NamedTuple

from django.contrib.admin.models import LogEntry
from django.db.models import F
from django.db.models.fields.tuple_lookups import Tuple, TupleLessThan
from django.utils import timezone

from workflows.extension import installed
from workflows.health import bounded
from workflows.models import Access, Deputy, Event, Search
from workflows.telling.audited import DID, LOOKED, Rows, Source, by_people
from workflows.users import named


class Place(NamedTuple):
    """The position of a line in the audit."""

    at: datetime
    rank: int
    pk: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Which lines to read: of a person (by name), about these workflows, in a range of time, of one sort."""

    person: str = ""
    workflows: Sequence[int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    sort: str = ""


def _logged_by(rows: Rows, name: str) -> Rows:
    user = named(name).values_list("pk", flat=True).first()
    return rows.filter(user_id=user)


ACCESSES = Source(0, LOOKED, Access.objects.all, workflow="workflow")
ACTS = Source(2, DID, lambda: by_people(Event.objects.all()), workflow="workflow")
# No joins: they would lose the index's order, and the lines about deleted workflows.
OURS = (
    ACCESSES,
    Source(1, LOOKED, Search.objects.all),
    ACTS,
    Source(
        4,
        DID,
        lambda: LogEntry.objects.prefetch_related("user", "content_type"),
        at="action_time",
        of_person=_logged_by,
    ),
)


def sources(person: str = "") -> Iterator[Source]:
    """The tables; of a person also what each deputy has done for them, while they were away."""
    yield from OURS
    yield from (source for each in installed() for source in each.audited)
    for row in Deputy.objects.filter(absent__in=named(person)).select_related("deputy") if person else ():
        yield replace(ACTS, rows=partial(_of_deputy, row), of_person=_for)


def _of_deputy(row: Deputy) -> Rows:
    """The events of a deputy: an index has those of a person by time."""
    by = Event.objects.filter(actor=row.deputy.get_username(), at__gte=row.begins_at, at__lt=row.ends_at)
    return by_people(by)


def _for(rows: Rows, name: str) -> Rows:
    return rows.filter(detail__deputy_for=name)


class Line(NamedTuple):
    """A row of one of the audit's tables, and its position."""

    place: Place
    row: Any


def lines(asked: Asked, *, before: Place | None = None, limit: int) -> list[Line]:
    """The newest lines that match, or the newest before a position."""
    found = [line for source in sources(asked.person) for line in _read(source, asked, before, limit)]
    return sorted(found, key=lambda line: line.place, reverse=True)[:limit]


def _read(source: Source, asked: Asked, before: Place | None, limit: int) -> Iterator[Line]:
    if asked.sort not in ("", source.sort) or (asked.workflows is not None and not source.workflow):
        return
    rows = _chosen(source.rows(), source, asked)
    if before:
        rows = _beyond(rows, source, before)
    order = (f"-{source.at}", "-id")
    if asked.workflows is None:
        found = rows.order_by(*order)[:limit]
    else:  # of each workflow an index has them in order
        first, *others = [rows.filter(**{source.workflow: pk}).order_by(*order)[:limit] for pk in asked.workflows]
        found = first.union(*others, all=True).order_by(*order)[:limit] if others else first
    for row in found:
        yield Line(Place(getattr(row, source.at), source.rank, row.pk), row)


def _chosen(rows: Rows, source: Source, asked: Asked) -> Rows:
    """The rows of this person and range of time."""
    if asked.person:
        rows = source.of_person(rows, asked.person)
    if asked.since:
        rows = rows.filter(**{f"{source.at}__gte": asked.since})
    if asked.until:
        rows = rows.filter(**{f"{source.at}__lt": asked.until})
    return rows


def _beyond(rows: Rows, source: Source, place: Place) -> Rows:
    """The rows after a position: those with (at, rank, id) < place."""
    if source.rank == place.rank:
        return rows.filter(TupleLessThan(Tuple(F(source.at), F("id")), (place.at, place.pk)))
    return rows.filter(**{f"{source.at}__{'lte' if source.rank < place.rank else 'lt'}": place.at})


def reveals(asked: Asked) -> list[tuple[date, str, int]]:
    """How often each person revealed values, by the reader's days, newest first. Counts only the newest 10,000."""
    rows = _chosen(Access.objects.filter(kind=Access.Kind.REVEALED), ACCESSES, asked)
    newest = rows.order_by("-at").values_list("at", "actor")[: bounded.limit()]
    counted = Counter((timezone.localdate(at), actor) for at, actor in newest)
    by_name = sorted(((day, actor, number) for (day, actor), number in counted.items()), key=lambda each: each[1])
    return sorted(by_name, key=lambda each: each[0], reverse=True)


def every_line(asked: Asked, *, size: int = 1_000) -> Iterator[Line]:
    """All lines that match, newest first. Reads `size` rows of a table at a time."""
    return merge(
        *(_all(source, asked, size) for source in sources(asked.person)), key=lambda line: line.place, reverse=True
    )


def _all(source: Source, asked: Asked, size: int) -> Iterator[Line]:
    before = None
    while found := list(_read(source, asked, before, size)):
        yield from found
        before = found[-1].place
