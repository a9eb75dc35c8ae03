"""WAITING: what waits for people, as SQL, and when the teams are told of it.

Each row is told once under each topic, and again if its time or its assignee changes. What is alike (topic, code, team,
assignee) is told together, at most once in a window: the first at once, the others when the window is over. So a
failure of thousands is a few messages, with the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from workflows.engine.undo_doubts import UNDO_TASK_TYPE
from workflows.extension import ToTell, installed
from workflows.health.money_at_risk import urgent
from workflows.postgres.statements import execute, fetch_all, literal

# The window of what has money in doubt, and that of the rest; e-mail has one of its own for the rest.
URGENT_WINDOW, WINDOW = timedelta(minutes=1), timedelta(minutes=10)
SECOND = "second_person.wanted"
# Rows that a slice notices, and rows that a message lists; the message has the number of all.
AT_A_TIME, LISTED = 1_000, 20

# A task that opens with less than an hour left is not told twice. While the assignee is away their deputy is told, of
# what they had claimed themselves, too; when the absence is over, the assignee is told of what is left.
_TASKS = f"""
    SELECT topic, t.task_type, t.id, t.workflow_id, t.team, whom, since
      FROM workflows_manualtask t
      LEFT JOIN LATERAL (
           SELECT deputy_id FROM workflows_deputy
            WHERE absent_id = t.assignee_id AND statement_timestamp() >= begins_at AND statement_timestamp() < ends_at
            LIMIT 1) d ON true
     CROSS JOIN LATERAL (VALUES
           (CASE t.task_type WHEN {literal(UNDO_TASK_TYPE)} THEN 'reversal.failed' ELSE 'task.opened' END,
            NULLIF(t.assignee_id, t.assignee_id), t.created_at, true),
           ('task.assigned', coalesce(d.deputy_id, t.assignee_id), t.created_at,
            t.assignee_id IS NOT NULL AND (t.claimed_at IS NULL OR d.deputy_id IS NOT NULL)),
           ('task.due_soon', NULL, coalesce(t.due_at, t.expires_at),
            statement_timestamp() BETWEEN coalesce(t.due_at, t.expires_at) - interval '1 hour'
                                      AND coalesce(t.due_at, t.expires_at)
            AND t.created_at < coalesce(t.due_at, t.expires_at) - interval '1 hour'),
           ('task.overdue', NULL, t.due_at, t.due_at <= statement_timestamp()),
           ('lead.asked', NULL, t.lead_asked_at, t.lead_asked_at IS NOT NULL)) AS found (topic, whom, since, holds)
     WHERE t.state = 'open' AND holds
       AND EXISTS (SELECT FROM workflows_workflow w WHERE w.id = t.workflow_id AND w.status = 'PENDING')"""  # noqa: S608 (ours)


def _waiting() -> str:
    """SQL for all that waits: topic, code, subject, workflow_id, team, whom, since."""
    others = [
        f"""SELECT '{each.topic}', '{each.code}', subject, workflow_id, {"team" if each.of_teams else "''"}, NULL, since
              FROM ({each.rows}) AS of_feature (subject, workflow_id, since{", team" if each.of_teams else ""})"""  # noqa: S608 (ours)
        for each in _to_tell()
    ]
    return " UNION ALL ".join([_TASKS, *others])


def _to_tell() -> list[ToTell]:
    return [each for extension in installed() for each in extension.to_tell]


def of_feature(topic: str, code: str) -> ToTell | None:
    """What a feature says of what waits; None for a task."""
    return next((each for each in _to_tell() if (each.topic, each.code) == (topic, code)), None)


# An assignment that is over: if the task is assigned to them again, they are told again.
_FORGET = """
    UPDATE workflows_notice n SET whom_id = NULL
     WHERE whom_id IS NOT NULL
       AND (SELECT true FROM workflows_manualtask t
             WHERE t.id = n.subject AND t.state = 'open' AND t.assignee_id IS NOT NULL
               AND (t.claimed_at IS NULL OR EXISTS (
                    SELECT FROM workflows_deputy
                     WHERE absent_id = t.assignee_id
                       AND statement_timestamp() >= begins_at AND statement_timestamp() < ends_at))
             LIMIT 1) IS NULL"""

# The others go with their workflow. A day: they also say when the last one of its kind was told.
_OVER = """
    DELETE FROM workflows_notice n
     WHERE workflow_id IS NULL AND noticed_at < statement_timestamp() - interval '1 day'
       AND NOT EXISTS (SELECT FROM ({}) AS w (topic, code, subject, workflow_id, team, whom, since)
                        WHERE (w.topic, w.code, w.subject) = (n.topic, n.code, n.subject))"""


# Longer than a team's week, so that what waits for its hours is told.
_UNTOLD_FOR_LONG = """
    UPDATE workflows_notice SET told_at = coalesce(told_at, noticed_at), mailed_at = coalesce(mailed_at, noticed_at)
     WHERE (told_at IS NULL OR mailed_at IS NULL) AND noticed_at < statement_timestamp() - interval '8 days'"""


def notice() -> int:
    """Store what waits and is new; return how many rows changed.

    A way that nobody is told by counts as told in the end, so that its setting later brings no old news.
    """
    execute(_UNTOLD_FOR_LONG)
    execute(_FORGET)
    execute(_OVER.format(_waiting()))
    return execute(
        f"""INSERT INTO workflows_notice
                   (topic, code, subject, workflow_id, team, whom_id, since)
            SELECT w.* FROM ({_waiting()}) AS w (topic, code, subject, workflow_id, team, whom, since)
             -- LIMIT: one step in the index for each, whatever the statistics say of a table that fills just now.
             WHERE (SELECT true FROM workflows_notice n
                     WHERE (n.topic, n.code, n.subject, n.since) = (w.topic, w.code, w.subject, w.since)
                       AND n.whom_id IS NOT DISTINCT FROM w.whom LIMIT 1) IS NULL
             LIMIT {AT_A_TIME}
                ON CONFLICT (topic, code, subject) DO UPDATE
               SET since = excluded.since, whom_id = excluded.whom_id, team = excluded.team,
                   told_at = NULL, mailed_at = NULL, noticed_at = excluded.noticed_at""",  # noqa: S608 (ours)
        {},
    )


class Group(NamedTuple):
    """What is told together. `whom` is the assignee; `last` is when the last message of this kind was stored."""

    topic: str
    code: str
    team: str
    whom: Any
    last: datetime | None
    now: datetime

    @property
    def is_urgent(self) -> bool:
        """Whether money may be in doubt, or a call waits for a second person."""
        found = of_feature(self.topic, self.code)
        return found.is_urgent if found else self.code in urgent()

    def may_be_told(self, window: timedelta) -> bool:
        window = URGENT_WINDOW if self.is_urgent else window
        # One that lies ahead comes from a clock that was set back since.
        return self.last is None or not timedelta() <= self.now - self.last < window


class Row(NamedTuple):
    """A notice of a group; `still` says that it still waits."""

    id: int
    subject: int
    workflow_id: int | None
    since: datetime
    still: bool


_OF_GROUP = """n.topic = %(topic)s AND n.code = %(code)s AND n.team = %(team)s
               AND n.whom_id IS NOT DISTINCT FROM %(whom)s"""


def untold(way: str) -> list[Group]:
    """The groups that wait to be told, urgent ones first; `way` is the column, `told_at` or `mailed_at`."""
    found = fetch_all(
        f"""SELECT topic, code, team, whom_id,
                   (SELECT max({way}) FROM workflows_notice l
                     WHERE (l.topic, l.code, l.team) = (n.topic, n.code, n.team)
                       AND l.whom_id IS NOT DISTINCT FROM n.whom_id), statement_timestamp()
              FROM workflows_notice n WHERE {way} IS NULL GROUP BY topic, code, team, whom_id ORDER BY min(id)"""  # noqa: S608 (ours)
    )
    return sorted((Group(*row) for row in found), key=lambda group: not group.is_urgent)


def take(group: Group, way: str) -> list[Row]:
    """The rows of a group that still wait, oldest first: they are told now. Those that wait no more are deleted."""
    found = fetch_all(
        f"""SELECT id, n.subject, n.workflow_id, n.since, coalesce(w.still, false)
              FROM workflows_notice n LEFT JOIN LATERAL (
                   SELECT w.since = n.since AND w.whom IS NOT DISTINCT FROM n.whom_id AS still
                     FROM ({_waiting()}) AS w (topic, code, subject, workflow_id, team, whom, since)
                    WHERE (w.topic, w.code, w.subject) = (n.topic, n.code, n.subject) LIMIT 1) w ON true
             WHERE {way} IS NULL AND {_OF_GROUP} ORDER BY n.since, id""",  # noqa: S608 (ours)
        group._asdict(),
    )
    rows = [Row(*each) for each in found]
    execute("DELETE FROM workflows_notice WHERE id = ANY (%s)", [[each.id for each in rows if not each.still]])
    rows = [each for each in rows if each.still]
    told = f"UPDATE workflows_notice SET {way} = statement_timestamp() WHERE id = ANY (%s)"  # noqa: S608 (ours)
    execute(told, [[each.id for each in rows]])
    return rows


def body(group: Group, rows: Sequence[Row]) -> dict[str, Any]:
    """What an event says: never a title, a reason, a note or a value."""
    return {
        "code": group.code,
        "team": group.team,
        "number": len(rows),
        "age_seconds": max(0, int((group.now - rows[0].since).total_seconds())),
        "urgent": group.is_urgent,
        "subjects": [each.subject for each in rows[:LISTED]],
        "workflows": [each.workflow_id for each in rows[:LISTED] if each.workflow_id],
    }
