"""MARKS on the chart of a cause: deploys, outages, brakes and holds, as far as they may explain what failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from workflows.extension import Mark
from workflows.features.trends import rates
from workflows.features.trends.page import Trends
from workflows.health.bounded import Link
from workflows.models import CircuitEvent, Pace, Service
from workflows.models.failure import Cause
from workflows.models.pace import Key, Scope
from workflows.models.rollup import Grain
from workflows.postgres.statements import fetch_all
from workflows.telling import words

Kind = CircuitEvent.Kind
# Of each service, cause, queue and type the newest entries are read, and so many marks are drawn.
READ, MOST = 100, 50
TONES: Mapping[str, str] = {Kind.OPENED: "bad", Kind.HELD: "wait", Kind.CLOSED: "good", Kind.RELEASED: "good"}
SAID: Mapping[str, str] = {Kind.OPENED: "down", Kind.HELD: "held", Kind.CLOSED: "up again", Kind.RELEASED: "released"}
OF_ITSELF: Mapping[str, str] = {Kind.OPENED: "This step was stopped", Kind.CLOSED: "This step goes on"}


def of(cause: Cause, shown: str, now: datetime) -> list[Mark]:
    """The newest marks in the range `shown` up to `now`, oldest first. Four bounded statements."""
    trends = Trends(shown, now)
    grain = Grain.MINUTE if trends.until - trends.since <= timedelta(days=1) else trends.range.grain
    found = [*_deploys(trends, grain), *_changes(cause, trends)]
    return sorted(found, key=lambda each: each.at)[-MOST:]


def _deploys(trends: Trends, grain: Grain) -> Iterator[Mark]:
    for release, at in rates.new_releases(trends.since, trends.until, grain):
        yield Mark(at, f"Release {release} is at work", "busy")


def _changes(cause: Cause, trends: Trends) -> Iterator[Mark]:
    """What has become of the cause itself, of its type, and of each service and queue."""
    paces = [str(Key(Scope.TYPE, cause.workflow_type))]
    paces += Pace.objects.filter(key__startswith=f"{Scope.QUEUE}:").order_by("key").values_list("key", flat=True)
    services = Service.objects.filter(step="").values_list("name", flat=True)
    changes = fetch_all(
        """SELECT name, at, kind, reason, actor
             FROM unnest(%(names)s::text[]) name
            CROSS JOIN LATERAL (
                  SELECT * FROM workflows_circuitevent WHERE service = name ORDER BY id DESC LIMIT %(read)s) newest
            WHERE kind = ANY (%(kinds)s) AND at >= %(since)s AND at < %(until)s""",
        {
            "names": [cause.name, *services, *paces],
            "read": READ,
            "kinds": list(TONES),
            "since": trends.since,
            "until": trends.until,
        },
    )
    for name, at, kind, reason, actor in changes:
        told, model = SAID[kind], "pace" if name in paces else "service"
        if name == cause.name:
            what = {Kind.OPENED: "This step was stopped", Kind.CLOSED: "This step went on"}.get(
                kind, f"This step: {told}"
            )
        else:
            what = f"{_title(name)}: {told}"
        by = f" by {actor}" if actor else ""
        yield Mark(at, f"{what}{by}. {words.ended(reason)}".strip(), TONES[kind], Link(model, pk=name))


def _title(name: str) -> str:
    key = Key.of(name)
    if key is None:
        return f"Service {name}"
    return words.workflow_type(key.name) if key.scope == Scope.TYPE else f"Queue {key.name}"
