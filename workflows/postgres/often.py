"""OFTEN: statements that are asked again every few seconds, as those of `/metrics`: the session keeps their plans.

Planning such a statement takes longer than running it, because a table has an index for each question. As
`workflows.postgres.statements`, but a plan is kept for a minute. Parameters become constants of the plan, so pass only
what is nearly always the same: names of types and limits, never a time or an id.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

import psycopg
from django.db import connection
from psycopg.pq import TransactionStatus

from workflows.postgres import statements
from workflows.postgres.django_connection import djangos_errors
from workflows.postgres.round_trips import SLOW
from workflows.postgres.statements import Parameters
from workflows.postgres.wire import Command, Row, wire_of


def fetch_all(sql: str, parameters: Parameters = ()) -> list[Row]:
    """Run one statement; return its rows."""
    connection.ensure_connection()
    raw: Any = connection.connection
    # A pooler may lend another backend, without the plans. And a transaction of Django's begins with its own statement.
    is_pooled = getattr(raw, "onramp_backend", None) is None
    if is_pooled or (not raw.autocommit and raw.info.transaction_status == TransactionStatus.IDLE):
        return statements.fetch_all(sql, parameters)
    with djangos_errors(connection):
        if parameters:
            sql = psycopg.ClientCursor(raw).mogrify(sql, parameters).replace("%", "%%")
        wire, began = wire_of(raw), monotonic()
        wire.before_others()
        (rows,) = wire.exchange([Command(sql, ())])
        if monotonic() > began + SLOW:  # the plan may be of a table that has grown since
            wire.prepare_anew()
        return rows


def fetch_row(sql: str, parameters: Parameters = ()) -> Row:
    """Run one statement that always returns one row; return the row."""
    (row,) = fetch_all(sql, parameters)
    return row
