"""AGES: what is kept by its own age, whatever becomes of the workflows: the audit, and messages that are of no use.

Each table by its number, which is its order in time: the first that is too young ends a round, so a round reads what
is old and stays, and no more.
"""

from __future__ import annotations

from typing import NamedTuple

from django.conf import settings

from workflows.features.queues.messages import HELD
from workflows.postgres.statements import fetch_row
from workflows.signals.waking import Slice

SIZE = 1_000


class Old(NamedTuple):
    """A table, the column of its time, the setting that says how many days, and which of its old rows go."""

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
    # The others go with their workflow.
    Old("workflows_event", "at", "AUDIT_KEPT_DAYS", f"t.actor <> '' AND {_NO_WORKFLOW}"),
    # An open one is still somebody's to look at. A legal hold may be on a refused submission.
    Old(
        "workflows_undeliveredmessage",
        "created_at",
        "MESSAGES_KEPT_DAYS",
        f"t.state <> '' AND NOT {HELD.replace('m.', 't.')}",
    ),
    # What no workflow has waited for, or the last one of its linking id was emptied.
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
    """Delete what is old enough of a slice after that number: a maintenance task."""
    parameters = {"days": getattr(settings, old.days), "after": after, "size": SIZE}
    gone, following = fetch_row(_FORGET.format(**old._asdict()), parameters)
    return Slice(gone, following)
