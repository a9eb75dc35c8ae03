"""BY TIME: workflows that came, or completed, between two times, read without an index on either time.

Ids are drawn in about the order of time, so a search by halves finds the ids between two times with some twenty looks
at the primary key. SLACK rows on each side are read, too: those that were stored in another order, as by concurrent
transactions, are found. What a server's clock put back by more than that has moved is not.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import QuerySet

from workflows.health import bounded
from workflows.models import Event, Workflow
from workflows.postgres.statements import fetch_row

SLACK = 1_000
# Two days of 100,000 completions: a rare type is not looked for in those of a year.
EXAMINED = 200_000
MAX = 2**63 - 1  # of a bigint


def came(rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
    """Those of the rows that were submitted at or after `since` and before `until`."""
    first, last = _ids("workflows_workflow", "created_at", since, until)
    return rows.filter(pk__gte=first, pk__lte=last, created_at__gte=since, created_at__lt=until)


class Completed(NamedTuple):
    """The ids of workflows that completed in a time, newest first, and whether they are all of them."""

    ids: list[int]
    are_all: bool


def completed(since: datetime, until: datetime, workflow_type: str = "") -> Completed:
    """The newest workflows of that type, or of all, that completed then, to one above the limit of counts.

    Looks at no more than the newest EXAMINED completions of that time, of whatever type.
    """
    first, last = _ids("workflows_event", "at", since, until)
    ids, examined = fetch_row(
        f"""WITH e AS MATERIALIZED (
                   SELECT id, workflow_id FROM workflows_event
                    WHERE id BETWEEN %(first)s AND %(last)s
                      AND kind = '{Event.Kind.COMPLETED}' AND finished_xid IS NOT NULL
                      AND at >= %(since)s AND at < %(until)s
                    ORDER BY id DESC LIMIT %(examined)s)
            SELECT ARRAY(SELECT w.id FROM e JOIN workflows_workflow w ON w.id = e.workflow_id
                          WHERE %(type)s IN ('', w.workflow_type)
                          ORDER BY e.id DESC LIMIT %(limit)s), (SELECT count(*) FROM e)""",  # noqa: S608 (ours)
        {
            "first": first,
            "last": last,
            "since": since,
            "until": until,
            "type": workflow_type,
            "examined": EXAMINED if workflow_type else bounded.limit() + 1,
            "limit": bounded.limit() + 1,
        },
    )
    return Completed(ids, examined < EXAMINED if workflow_type else len(ids) <= bounded.limit())


def _ids(table: str, column: str, since: datetime, until: datetime) -> tuple[int, int]:
    """The first and the last id that a row between these times can have."""
    return _near(table, column, since, "<= (SELECT low FROM found) ORDER BY id DESC", 0), _near(
        table, column, until, "> (SELECT low FROM found) ORDER BY id", MAX
    )


def _near(table: str, column: str, at: datetime, beyond: str, otherwise: int) -> int:
    """The id that is SLACK rows beyond the last one before a time."""
    (found,) = fetch_row(
        f"""WITH RECURSIVE search (low, high) AS (
                SELECT 0::bigint, coalesce(max(id), 0) + 1 FROM {table}
                 UNION ALL
                SELECT CASE WHEN is_before THEN middle ELSE low END, CASE WHEN is_before THEN high ELSE middle END
                  FROM search
                 CROSS JOIN LATERAL (SELECT (low + high) / 2 AS middle) halves
                 CROSS JOIN LATERAL (
                       SELECT coalesce((SELECT {column} < %(at)s FROM {table}
                                         WHERE id >= middle ORDER BY id LIMIT 1), false) AS is_before) looked
                 WHERE high - low > 1),
                found AS (SELECT max(low) AS low FROM search)
            SELECT coalesce((SELECT id FROM {table} WHERE id {beyond} OFFSET %(slack)s LIMIT 1),
                            %(otherwise)s)""",  # noqa: S608 (ours)
        {"at": at, "slack": SLACK, "otherwise": otherwise},
    )
    return int(found)
