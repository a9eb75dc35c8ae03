"""RECENT FAILURES: how many failed in a time, how many of them unexpectedly, and how many are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.utils import timezone

from workflows import times
from workflows.definition import definitions, wording_of_type
from workflows.errors import DUPLICATES
from workflows.health import bounded
from workflows.models import Workflow
from workflows.models.workflow import UNACKNOWLEDGED_SQL
from workflows.postgres.often import fetch_all
from workflows.wording import ENGINE_CODES, Wording, is_explained, words_for_code

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# Only so many failures that nobody has acknowledged for a day are checked, the newest ones.
FORGOTTEN = 10_000


def failed_between(rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
    """The workflows that failed in that time and were not retried since. Duplicates and cancelled ones do not count."""
    failed = rows.filter(status="FAILED", cancelled_at=None, completed_at__gte=since, completed_at__lt=until)
    return failed.exclude(last_error_code__in=DUPLICATES)


def window(at: datetime, number: int, column: timedelta) -> tuple[datetime, datetime]:
    """The start and end of so many columns, the last of which contains `at`. They start at full hours, or days, of UTC.

    So "the last 24 hours" are this hour and the 23 before it, on Home, in its charts, and in linked lists.
    """
    full = int(at.timestamp()) // int(column.total_seconds()) + 1
    until = datetime.fromtimestamp(full * column.total_seconds(), UTC)
    return until - number * column, until


def interval(text: str) -> tuple[datetime, datetime] | None:
    """Two times as a link has them: `2026-11-23T00:10:00.0Z/2026-11-23T01:10:00.0Z`, or one of RECENT; else None.

    None also for Python's first and last year, which some zones cannot show.
    """
    if text == "today":
        today = timezone.localdate()
        return times.start_of(today), times.start_of(today + timedelta(days=1))
    if text in RECENT:
        return window(timezone.now(), RECENT[text][1], HOUR)
    try:
        since, until = (datetime.strptime(part, _STAMP).replace(tzinfo=UTC) for part in text.split("/"))
    except ValueError:
        return None
    return (since, until) if all(MINYEAR < each.year < MAXYEAR for each in (since, until)) else None


# Times that move on with the clock, for filters that are kept: what they are called, and how many hours they have.
RECENT = {
    "today": ("Today", 24),
    "24h": ("Last 24 hours", 24),
    "7d": ("Last 7 days", 7 * 24),
    "30d": ("Last 30 days", 30 * 24),
}
_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


def interval_text(since: datetime, until: datetime) -> str:
    """The text of an interval, for a link."""
    return f"{since:{_STAMP}}/{until:{_STAMP}}"


@dataclass(frozen=True, slots=True)
class FailedWorkflows:
    """How many failed, how many of them are not the patient's own, and the earliest."""

    number: int
    unexpected: int
    earliest: datetime | None  # of those that are counted


class Recent(NamedTuple):
    """The failures of the last hour and of the time before it; those that nobody has acknowledged, and the forgotten.

    `forgotten` are unacknowledged for a day, of the newest, without those of codes that need nobody.
    """

    last: FailedWorkflows
    before: FailedWorkflows
    unacknowledged: int
    forgotten: int


# Times by the server's clock, so that the plan can be kept: see `often`. The day is that of `window`.
_HOUR = "statement_timestamp() - interval '1 hour'"
_DAY = "date_trunc('hour', statement_timestamp(), 'UTC') - interval '23 hours'"
_OF = "workflow_type, last_error_code, count(*), min(completed_at)"
_LATEST = f"""{_OF} FROM (
               SELECT workflow_type, last_error_code, completed_at FROM workflows_workflow
                WHERE status = 'FAILED' AND cancelled_at IS NULL AND completed_at >= {{since}}
                  AND completed_at < {{until}} AND last_error_code <> ALL (%(duplicates)s)
                ORDER BY completed_at DESC LIMIT %(limit)s) these GROUP BY 2, 3"""  # noqa: S608 (ours)
_READ = f"""
        SELECT 'last', {_LATEST.format(since=_HOUR, until="statement_timestamp()")}
         UNION ALL
        SELECT 'before', {_LATEST.format(since=_DAY, until=_HOUR)}
         UNION ALL
        SELECT 'old', {_OF} FROM (
               SELECT workflow_type, last_error_code, completed_at FROM workflows_workflow
                WHERE {UNACKNOWLEDGED_SQL} AND completed_at < statement_timestamp() - interval '1 day'
                ORDER BY completed_at DESC LIMIT %(forgotten)s) old GROUP BY 2, 3
         UNION ALL
        SELECT 'left', '', '', count(*), NULL FROM (
               SELECT FROM workflows_workflow WHERE {UNACKNOWLEDGED_SQL} LIMIT %(limit)s) unacknowledged"""  # noqa: S608 (ours)


def read() -> Recent:
    """All of them. Of the last hour and of the time before, the latest up to the limit of counts are read."""
    limits = {"limit": bounded.limit() + 1, "forgotten": FORGOTTEN}
    found = fetch_all(_READ, {**limits, "duplicates": list(DUPLICATES)})
    told = {what: [each for which, *each in found if which == what] for what in ("last", "before", "old", "left")}
    needs = [
        number
        for of_type, code, number, _ in told["old"]
        if not words_for_code(wording_of_type(of_type), code).asks_nobody
    ]
    return Recent(_failed(told["last"]), _failed(told["before"]), sum(each[2] for each in told["left"]), sum(needs))


def _failed(found: Sequence[Sequence[Any]]) -> FailedWorkflows:
    unexpected = (number for of, code, number, _ in found if not is_explained(wording_of_type(of), code))
    earliest = min((at for *_, at in found), default=None)
    return FailedWorkflows(sum(number for _, _, number, _ in found), sum(unexpected), earliest)


def is_unexpected() -> Q:
    """A condition for failed workflows whose code has no words that make it the patient's own."""
    return ~_with_code(is_explained)


def _with_code(holds: Callable[[Wording, str], bool]) -> Q:
    """A condition for failed workflows whose code meets `holds`, by their type's words, if known here."""

    def codes(wording: Wording) -> list[str]:
        return [code for code in {*wording.codes, *ENGINE_CODES} if holds(wording, code)]

    found = ~Q(workflow_type__in=definitions()) & Q(last_error_code__in=codes(Wording()))
    for definition in definitions().values():
        found |= Q(workflow_type=definition.name, last_error_code__in=codes(definition.wording))
    return found


def usual_failures(before: FailedWorkflows, *, since: datetime, until: datetime) -> float:
    """Unexpected failures an hour. Above the limit of counts, the rate is that of the counted ones."""
    if before.number > bounded.limit() and before.earliest:
        since = before.earliest
    return before.unexpected / max((until - since) / HOUR, 1 / 3600)
