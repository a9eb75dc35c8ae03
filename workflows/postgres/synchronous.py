"""SYNCHRONOUS: with `synchronous_standby_names` a COMMIT waits until a standby has it. A wait can be cancelled.

The server then answers with success and a WARNING: the transaction is committed here, and lost if a standby takes over
before it has it. For us that is a COMMIT without an answer. Others see its rows meanwhile, so what was stored before is
promised again only by a transaction that commits synchronously itself: the standby then has all that was seen.
https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION-HA
"""

from __future__ import annotations

from typing import Any

import psycopg

from workflows.postgres.statements import fetch_row

# The server's function that waits; the text of its WARNING may be in any language.
_WAITS = "SyncRepWaitForLSN"
# SQL for a value of a SELECT. It writes the smallest record, because a transaction that writes none does not wait.
COMMITS = "pg_logical_emit_message(true, 'onramp', '')"


class Wait:
    """What the server has said about the last wait of a psycopg connection."""

    def __init__(self, raw: Any) -> None:
        self.is_cancelled = False
        raw.add_notice_handler(self._hear)

    def _hear(self, notice: Any) -> None:
        self.is_cancelled = self.is_cancelled or notice.source_function == _WAITS

    def require_end(self, pgconn: Any) -> None:
        """Close the connection, and raise OperationalError, if a wait was cancelled."""
        if self.is_cancelled:
            pgconn.finish()
            raise psycopg.OperationalError("committed here, but perhaps not on a standby")


def promise() -> None:
    """Let the open transaction, which has found what was stored before, commit synchronously. Raises as a query."""
    fetch_row(f"SELECT {COMMITS}")
