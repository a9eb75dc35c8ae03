"""FAILURES by cause: type, step and code (or class), in all releases. A cancelled workflow is no failure.

Only the newest failures are grouped, in the order of an index, so a page costs the same however many there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from workflows.definition import wording_of_type
from workflows.errors import DUPLICATES
from workflows.health import bounded
from workflows.models import Event
from workflows.models.event import NOT_COMPLETED_SQL
from workflows.models.failure import AssignedCause, Cause
from workflows.models.workflow import UNACKNOWLEDGED_SQL
from workflows.operations.payments import charged_among
from workflows.postgres.statements import fetch_all, literals
from workflows.wording import is_explained, words_for_code

# The most failures that are grouped: a day on which everything fails.
MOST = 50_000
# The charges of a group's newest 20 workflows are checked if they are among the newest 1,000 of all; else of one.
SAMPLE, SAMPLES = 20, 1_000


class OfRelease(NamedTuple):
    """How many of a group's failures a release has, the first and the last."""

    release: str
    number: int
    first: datetime
    last: datetime


@dataclass(slots=True)
class Group:
    """The failures of one cause: how many, and how many that nobody has acknowledged.

    `newest` are the ids of some, and `charged` those of them whose charge stands or is unclear. `assignee` is the name
    of the user who looks after them. `releases`: the newest first.
    """

    cause: Cause
    number: int
    left: int
    first: datetime
    last: datetime
    newest: list[int]
    releases: list[OfRelease]
    charged: Set[int] = frozenset()
    assignee: str = ""

    @property
    def asks_nobody(self) -> bool:
        """Whether nothing is left to do: the patients know, no money is held, and nobody is assigned."""
        wording = wording_of_type(self.cause.workflow_type)
        return words_for_code(wording, self.cause.code).asks_nobody and not (self.charged or self.assignee)

    @property
    def kind(self) -> str:
        """`passing`: a retry may mend it; `unforeseen`: an engineer looks before that; else `explained`."""
        wording, code = wording_of_type(self.cause.workflow_type), self.cause.code
        if words_for_code(wording, code).passing:
            return "passing"
        if words_for_code(wording, code).engineer or not is_explained(wording, code):
            return "unforeseen"
        return "explained"


def unacknowledged(cause: Cause | None = None, *, most: int | None = None) -> list[Group]:
    """The failures that nobody has acknowledged, of all causes or of one. Those with money held first, then by size."""
    return _groups(UNACKNOWLEDGED_SQL, cause, most or MOST)


def between(since: datetime, until: datetime, cause: Cause | None = None) -> list[Group]:
    """The failures of a time that were not retried since, acknowledged or not. Duplicates are no failures."""
    condition = """status = 'FAILED' AND cancelled_at IS NULL AND last_error_code <> ALL (%(duplicates)s)
                   AND completed_at >= %(since)s AND completed_at < %(until)s"""
    return _groups(condition, cause, MOST, since=since, until=until)


class Ends(NamedTuple):
    """The failures of a time, retried since or not: how many, and whether each of their workflows is still failed.

    Leaves out the failures of workflows that were deleted since.
    """

    number: int
    workflows: dict[int, bool]


def ends(since: datetime, until: datetime, cause: Cause | None = None, workflow_type: str = "") -> Ends:
    """Each failure of that time, as the rollup counts them, without duplicates. Reads only the newest.

    Of one cause, of a type, or of all.
    """
    asked: dict[str, Any] = {
        "since": since,
        "until": until,
        "duplicates": list(DUPLICATES),
        "most": MOST,
        "limit": bounded.limit() + 1,
    }
    only = f"{_OF_TYPE if cause or workflow_type else ''} {_OF_CAUSE if cause else ''}"
    with connection.cursor() as cursor:
        cursor.execute(
            _ENDS.format(only=only), asked | (cause._asdict() if cause else {"workflow_type": workflow_type})
        )
        found = cursor.fetchall()
    return Ends(sum(number for _, number, _ in found), {pk: still for pk, _, still in found})


# Newest first, up to the limit. A compensation counts with the verdict before it.
_ENDS = f"""
    SELECT w.id, count(*), w.status = 'FAILED' AND w.cancelled_at IS NULL
      FROM (SELECT f.workflow_id
              FROM (SELECT id, workflow_id, at, kind, step, detail FROM workflows_event
                     WHERE {NOT_COMPLETED_SQL} AND at >= %(since)s AND at < %(until)s
                     ORDER BY at DESC, id DESC LIMIT %(most)s) f
              LEFT JOIN LATERAL (
                    SELECT kind, step, detail FROM workflows_event e
                     WHERE f.kind = 'compensated' AND e.workflow_id = f.workflow_id AND e.id < f.id
                       AND e.kind IN {literals(Event.VERDICTS)} ORDER BY e.id DESC LIMIT 1) verdict ON true
             CROSS JOIN LATERAL (
                    SELECT coalesce(nullif(detail ->> 'error_code', ''), detail ->> 'error_class', '') AS code
                      FROM (SELECT coalesce(verdict.detail, f.detail) AS detail) said) told
             WHERE coalesce(verdict.kind, f.kind) <> 'cancelled' AND told.code <> ALL (%(duplicates)s) {{only}}
             ORDER BY f.at DESC, f.id DESC LIMIT %(limit)s) ended
      JOIN workflows_workflow w ON w.id = ended.workflow_id
     GROUP BY w.id"""  # noqa: S608 (ours)
_OF_CAUSE = "AND coalesce(verdict.step, f.step) = %(step)s AND told.code = %(code)s"
_OF_TYPE = """AND (SELECT workflow_type FROM workflows_workflow w WHERE w.id = f.workflow_id) = %(workflow_type)s"""

# Outside the LIMIT: the planner expects few rows of a condition on three columns, and would sort all instead.
_CAUSE = "WHERE workflow_type = %(workflow_type)s AND current_step = %(step)s AND code = %(code)s"


def statement(condition: str) -> str:
    """SQL of the newest failures that meet a condition, up to `limit`. Reads only the index."""
    return f"""SELECT workflow_type, current_step, failed_release, id, completed_at,
                      coalesce(nullif(last_error_code, ''), last_error_class) AS code,
                      acknowledged_failure IS DISTINCT FROM completed_at AS is_left
                 FROM workflows_workflow WHERE {condition}
                ORDER BY completed_at DESC, id DESC LIMIT %(limit)s"""  # noqa: S608 (ours)


def _groups(condition: str, cause: Cause | None, most: int, **times: datetime) -> list[Group]:
    newest = f"({statement(condition)}) newest {_CAUSE if cause else ''}"
    asked = {"duplicates": list(DUPLICATES), **times, **(cause._asdict() if cause else {})}
    named = "workflow_type, current_step, code"
    found = fetch_all(
        f"""SELECT {named}, failed_release, max(id), count(*), count(*) FILTER (WHERE is_left),
                   min(completed_at), max(completed_at)
              FROM {newest} GROUP BY {named}, failed_release""",  # noqa: S608 (ours)
        {**asked, "limit": most},
    )
    # Without an array of the ids, which PostgreSQL would sort.
    samples: dict[Cause, list[int]] = defaultdict(list)
    first = f"SELECT {named}, id FROM {newest} LIMIT {SAMPLE if cause else SAMPLES}"  # noqa: S608 (ours)
    for *of_cause, pk in fetch_all(first, {**asked, "limit": most if cause else SAMPLES}):
        samples[Cause(*of_cause)].append(pk)
    releases = defaultdict(list)
    for workflow_type, step, code, *of_release in found:
        releases[Cause(workflow_type, step, code)].append(of_release)
    groups = [_group(same, samples[same][:SAMPLE], found) for same, found in releases.items()]
    charged = charged_among([pk for group in groups for pk in group.newest])
    for group in groups:
        group.charged = charged & {*group.newest}
    _add_assignees(groups)
    return sorted(groups, key=lambda group: (not group.charged, not group.left, -group.number, group.cause))


def _group(cause: Cause, newest: list[int], found: list[list[Any]]) -> Group:
    """The group of a cause, from what was found of each release."""
    releases = [OfRelease(release, number, first, last) for release, _, number, _, first, last in found]
    _, pks, numbers, left, first, last = zip(*found, strict=True)
    newest = newest or [max(pks)]
    releases.sort(key=lambda each: each.last, reverse=True)
    return Group(cause, sum(numbers), sum(left), min(first), max(last), newest, releases)


def _add_assignees(groups: list[Group]) -> None:
    since = min((group.first for group in groups), default=None)
    if since is None:
        return
    rows = AssignedCause.objects.filter(assignee__is_active=True, at__gte=since).select_related("assignee")
    found = {Cause(row.workflow_type, row.step, row.code): row for row in rows.order_by("at")}
    for group in groups:
        if (row := found.get(group.cause)) and row.at >= group.first:
            group.assignee = row.assignee.get_username()
