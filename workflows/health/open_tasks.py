"""OPEN TASKS by team and type: which there are, and how many."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from workflows.health import bounded
from workflows.postgres.often import fetch_all, fetch_row
from workflows.postgres.skip_scan import skip_scan

_TEAMS_AND_TYPES = skip_scan("found", "workflows_manualtask", "state = 'open'", "team", "task_type")


def teams_and_types() -> list[tuple[str, str]]:
    """The teams and types of open tasks, by one step down their index for each."""
    found = fetch_all(f"WITH RECURSIVE {_TEAMS_AND_TYPES} SELECT team, task_type FROM found")  # noqa: S608 (ours)
    return [(team, task_type) for team, task_type in found]


class OpenTasks(NamedTuple):
    """The number of open tasks of a type, and since when the oldest is open."""

    task_type: str
    number: int
    oldest: datetime


def open_tasks_by_type() -> list[OpenTasks]:
    """The open tasks of each type. Reading stops at the limit in each team and type."""
    found = fetch_all(
        f"""WITH RECURSIVE {_TEAMS_AND_TYPES},
            open AS MATERIALIZED (
                SELECT found.task_type, t.created_at, t.workflow_id FROM found CROSS JOIN LATERAL (
                    SELECT t.created_at, t.workflow_id FROM workflows_manualtask t
                     WHERE t.state = 'open' AND t.team = found.team AND t.task_type = found.task_type
                     ORDER BY t.created_at, t.id LIMIT %(limit)s) t)
            SELECT task_type, least(count(*), %(limit)s), min(created_at) FROM open JOIN (
                   SELECT id FROM workflows_workflow
                    WHERE id = ANY (ARRAY(SELECT workflow_id FROM open)) AND status = 'PENDING' OFFSET 0) under_way
                ON under_way.id = open.workflow_id
             GROUP BY task_type ORDER BY task_type""",  # noqa: S608 (ours)
        {"limit": bounded.limit() + 1},
    )
    return [OpenTasks(*each) for each in found]


def number() -> int:
    """The number of open tasks, up to one more than people are shown."""
    # LATERAL and LIMIT fix the order of the joins. ORDER BY and LIMIT are of one SELECT: for an order below it,
    # PostgreSQL would sort all open tasks.
    (found,) = fetch_row(
        """SELECT count(*) FROM (
               SELECT FROM workflows_manualtask t CROSS JOIN LATERAL (
                      SELECT FROM workflows_workflow w WHERE w.id = t.workflow_id AND w.status = 'PENDING' LIMIT 1) w
                WHERE t.state = 'open' ORDER BY t.expires_at LIMIT %(limit)s) these""",
        {"limit": bounded.people_limit() + 1},
    )
    return int(found)


_TYPES = skip_scan("types", "workflows_manualtask", "state = 'open'", "task_type")


def open_task_types() -> list[str]:
    """The types of the open tasks, in order."""
    (found,) = fetch_row(
        f"""WITH RECURSIVE {_TYPES}
           SELECT coalesce(array_agg(task_type ORDER BY task_type), '{{}}') FROM types CROSS JOIN LATERAL (
                  SELECT FROM workflows_manualtask t JOIN workflows_workflow w ON w.id = t.workflow_id
                   WHERE t.task_type = types.task_type AND t.state = 'open' AND w.status = 'PENDING' LIMIT 1) open""",  # noqa: S608 (ours)
    )
    return list(found)
