"""AGES: rows that go by their own age, not their workflow's: the audit, and messages that are settled or unused.

Each table is read by id, which follows its time. A round ends at the first row that is too young.
"""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings

from workflows.features.queues.messages import HELD
from workflows.postgres.statements import fetch_row
from workflows.signals.waking import Slice

SIZE = 1_000


class Old(NamedTuple):
    """A table, the column with its time, the setting with the days, and a condition for the rows that go."""

    table: str
    at: str
    days: str
    which: str = "true"

    @property
    def chore(self) -> str:
        return f"forget {self.table.removeprefix('workflows_')}"


_NO_WORKFLOW = "NOT EXISTS (SELECT FROM workflows_workflow w WHERE w.id = t.workflow_id)"
OLD = [
    Old("workflows_access", "at", "AUDIT_KEPT_DAYS"),
    Old("workflows_search", "at", "AUDIT_KEPT_DAYS"),
    Old("workflows_circuitevent", "at", "AUDIT_KEPT_DAYS"),
    Old("django_admin_log", "action_time", "AUDIT_KEPT_DAYS"),
    # Events of an existing workflow go with it.
    Old("workflows_event", "at", "AUDIT_KEPT_DAYS", f"t.actor <> '' AND {_NO_WORKFLOW}"),
    # An open message still waits for a person. A legal hold may be on a refused submission.
    Old(
        "workflows_undeliveredmessage",
        "created_at",
        "MESSAGES_KEPT_DAYS",
        f"t.state <> '' AND NOT {HELD.replace('m.', 't.')}",
    ),
    # Signals that no workflow has waited for, or whose linking id has no workflow any more.
    Old(
        "workflows_signal",
        "created_at",
        "MESSAGES_KEPT_DAYS",
        f"""{_NO_WORKFLOW} AND (t.closed_at IS NOT NULL OR t.linking_id IS NULL) AND NOT EXISTS (
            SELECT FROM workflows_workflow w WHERE w.linking_id = t.linking_id)""",
    ),
]
_FORGET = """
    WITH slice AS MATERIALIZED (
        SELECT id, {at} < now() - make_interval(days => %(days)s) AS is_old
          FROM {table} WHERE id > %(after)s ORDER BY id LIMIT %(size)s),
    gone AS (DELETE FROM {table} t USING slice WHERE t.id = slice.id AND is_old AND {which} RETURNING t.id)
    SELECT (SELECT count(*) FROM gone), CASE WHEN bool_and(is_old) THEN max(id) ELSE 0 END
      FROM slice"""


def forget(old: Old, after: int = 0) -> Slice:
    """Maintenance: delete the rows of a slice after this id that are old enough."""
    parameters = {"days": getattr(settings, old.days), "after": after, "size": SIZE}
    gone, following = fetch_row(_FORGET.format(**old._asdict()), parameters)
    return Slice(gone, following)
