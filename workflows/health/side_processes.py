"""SIDE PROCESSES: which consumers and relays are live, and which topics, queues and destinations have none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F, Q, QuerySet

from workflows import times
from workflows.engine.side_process_heartbeat import SILENT_AFTER
from workflows.extension import installed
from workflows.models import SideProcess
from workflows.postgres import often

# A deploy replaces the processes within a minute.
START_WITHIN = timedelta(seconds=60)
# The most processes on the page.
LISTED = 100
CONSUMER, RELAY = SideProcess.Kind.CONSUMER, SideProcess.Kind.RELAY


@dataclass(frozen=True, slots=True)
class Unattended:
    """A topic, a queue or a destination that no live process takes. `although`: why one should, in words."""

    kind: str
    name: str
    although: str

    def __str__(self) -> str:
        what = "consumer is running for" if self.kind == CONSUMER else "relay is running for the destination"
        return f"no {what} {self.name}, although {self.although}"


def is_live(at: datetime) -> Q:
    """A condition for a row: its process has been heard of within the longest time without a beat."""
    return Q(stopped_at=None, last_seen__gte=at - timedelta(seconds=SILENT_AFTER))


def newest() -> QuerySet[SideProcess]:
    """The processes for a list: running ones first, then those that stopped last."""
    return SideProcess.objects.order_by(F("stopped_at").desc(nulls_first=True), "kind", "name")[:LISTED]


def unattended(at: datetime, wanted: Iterable[Unattended] | None = None) -> list[Unattended]:
    """What no live process takes, of what the features want taken and what the last dead consumer took.

    `wanted`: the features' answers, if they were asked already.
    """
    if wanted is None:
        wanted = [each for extension in installed() for each in extension.wanted(at)]
    rows = often.instances(_by_last_seen)
    since = at - timedelta(seconds=SILENT_AFTER)
    live = [row for row in rows if row.stopped_at is None and row.last_seen >= since]
    taken = {(row.kind, each) for row in live for each in row.takes}
    taken |= {(row.kind, each) for row in rows if _is_replaced_now(row, at) for each in row.takes}
    last = {(row.kind, each): row for row in rows for each in row.takes}
    found = {(each.kind, each.name): each for each in wanted}
    for (kind, name), row in last.items():
        if kind == CONSUMER and (row.stopped_at is None or row.ended_how):
            ended = f"ended by {row.ended_how}" if row.ended_how else "fell silent"
            why = f"the last one {ended} at {times.brief(row.last_seen, at)}"
            found.setdefault((kind, name), Unattended(kind, name, why))
    return sorted((each for key, each in found.items() if key not in taken), key=lambda each: each.kind)


def _by_last_seen() -> QuerySet[SideProcess]:
    return SideProcess.objects.order_by("last_seen")


def _is_replaced_now(row: SideProcess, at: datetime) -> bool:
    return row.stopped_at is not None and not row.ended_how and row.stopped_at > at - START_WITHIN
