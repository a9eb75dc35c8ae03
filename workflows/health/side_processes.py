"""SIDE PROCESSES: which consumers and relays live, and what nobody takes though somebody should."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from workflows import times
from workflows.engine.side_heartbeat import SILENT_AFTER
from workflows.features.outbox import health as outbox
from workflows.models import SideProcess

# A release replaces its processes within a minute.
START_WITHIN = timedelta(seconds=60)
# On the page.
LISTED = 100
CONSUMER, RELAY = SideProcess.Kind.CONSUMER, SideProcess.Kind.RELAY


@dataclass(frozen=True, slots=True)
class Unattended:
    """What no live process of a kind takes: a topic, a queue, or a destination of the outbox. `although`: why one
    should, in words."""

    kind: str
    name: str
    although: str

    def __str__(self) -> str:
        what = "consumer is running for" if self.kind == CONSUMER else "relay is running for the destination"
        return f"no {what} {self.name}, although {self.although}"


def is_live(at: datetime) -> Q:
    """A condition for a row: its process was heard of within the time that it is ever without a beat."""
    return Q(stopped_at=None, last_seen__gte=at - timedelta(seconds=SILENT_AFTER))


def newest() -> QuerySet[SideProcess]:
    """For a list: those that run first, then those that stopped last."""
    return SideProcess.objects.order_by(F("stopped_at").desc(nulls_first=True), "kind", "name")[:LISTED]


def silent(at: datetime) -> QuerySet[SideProcess]:
    """Those that have not said that they stop, and that no process of their host has replaced."""
    alike = {each: OuterRef(each) for each in ("host", "kind", "takes")}
    replaced = Exists(SideProcess.objects.filter(is_live(at), **alike))
    return SideProcess.objects.filter(stopped_at=None).exclude(is_live(at)).exclude(replaced)


def unattended(at: datetime, destinations: list[outbox.Standing]) -> list[Unattended]:
    """What nobody takes: what the settings of this process name, what the last one that died took, and events that
    wait for a relay."""
    rows = list(SideProcess.objects.order_by("last_seen"))
    live = SideProcess.objects.filter(is_live(at)).values_list("kind", "takes")
    taken = {(kind, each) for kind, takes in live for each in takes}
    taken |= {(row.kind, each) for row in rows if _is_replaced_now(row, at) for each in row.takes}
    last = {(row.kind, each): row for row in rows for each in row.takes}
    found = dict(_configured())
    for (kind, name), row in last.items():
        if kind == CONSUMER and (row.stopped_at is None or row.ended_how):
            ended = f"ended by {row.ended_how}" if row.ended_how else "fell silent"
            found.setdefault(name, f"the last one {ended} at {times.brief(row.last_seen, at)}")
    told = [Unattended(CONSUMER, name, why) for name, why in found.items() if (CONSUMER, name) not in taken]
    for each in destinations:
        if each.is_known and each.oldest and at - each.oldest >= START_WITHIN and (RELAY, each.name) not in taken:
            events = "event waits" if each.waiting.number == 1 else "events wait"
            told.append(Unattended(RELAY, each.name, f"{each.waiting} {events}"))
    return told


def _is_replaced_now(row: SideProcess, at: datetime) -> bool:
    return row.stopped_at is not None and not row.ended_how and row.stopped_at > at - START_WITHIN


def _configured() -> list[tuple[str, str]]:
    submissions = [pair.partition("=")[0] for pair in settings.KAFKA_SUBMISSIONS]
    queue = settings.SQS_QUEUE_URL.rpartition("/")[2]
    return [
        *((topic, "KAFKA_TOPICS names it") for topic in settings.KAFKA_TOPICS),
        *((topic, "KAFKA_SUBMISSIONS names it") for topic in submissions),
        *([(queue, "SQS_QUEUE_URL names it")] if queue else []),
    ]
