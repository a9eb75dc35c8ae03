"""CLAIM: find the next due workflow, and lock its row."""

from __future__ import annotations

from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

from workflows import inbox
from workflows.models import Workflow

# A full look, from the oldest due row on, at least this often: at once a second, rows that became due behind the
# watermark were woken 0.5 to 1 s late in a backlog.
FULL_LOOK_EVERY = 0.25

COMPENSATION = "compensation"


class Claim(NamedTuple):
    """A workflow whose row is locked, by the transaction in which it was claimed."""

    workflow: Workflow
    xid: str  # of that transaction
    cancelled: bool  # a person has asked to cancel it
    expires_in: float  # seconds; infinite unless its definition says `expires_after`


class DueWorkflows:
    """The due workflows of one queue, in the order in which a worker takes them. `only`: "compensation", or all."""

    def __init__(self, queue: str, *, only: str = "") -> None:
        self._queue = queue
        self._pool = "AND compensating" if only == COMPENSATION else ""
        self._watermark: tuple[datetime, int] | None = None
        self._full_look_at = float("-inf")

    def claim_next(self) -> Claim | None:
        """Lock the next due row; None when other workers hold every due row, or none is due.

        The oldest due time comes first, not the oldest row: in the order of creation each claim would walk over every
        row that waits. The watermark, the pair last claimed, spares the walk over the entries that the drain so far
        has left dead and that a held claim keeps vacuum from removing; a full look finds what became due behind it.
        """
        if self._watermark and monotonic() < self._full_look_at + FULL_LOOK_EVERY:
            claim = self._select_due("AND (invisible_until, id) >= (%s, %s)", *self._watermark)
            if claim:
                return claim
        self._full_look_at = monotonic()
        return self._select_due("")

    def _select_due(self, watermark: str, *parameters: Any) -> Claim | None:
        # NO KEY UPDATE: inserts that refer to the row, with their KEY SHARE locks, need not wait for us.
        rows = Workflow.objects.raw(
            f"""
            SELECT *, pg_current_xact_id()::text AS claim_xid,
                   {inbox.cancel_requested_sql("workflows_workflow.id")} AS cancelled,
                   extract(epoch FROM expires_at - clock_timestamp())::float AS expires_in
              FROM workflows_workflow
             WHERE status = 'PENDING' AND queue = %s {self._pool} AND invisible_until <= now() {watermark}
             ORDER BY invisible_until, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
            """,  # noqa: S608 (the condition is ours)
            [self._queue, *parameters],
        )
        for workflow in rows:
            self._watermark = (workflow.invisible_until, workflow.pk)
            row: Any = workflow
            expires_in = float("inf") if row.expires_in is None else row.expires_in
            return Claim(workflow, row.claim_xid, row.cancelled, expires_in)
        return None
