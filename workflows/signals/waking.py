"""WAKING: make a workflow due that has a signal it waits for (docs/internals/waking.md).

A sender commits the signal; then a second statement wakes the rows that are not locked. A worker that has committed a
suspension wakes its own row in a new statement. The later of the two sees what the earlier has committed. If the sender
dies in between, or a third party locks the row, maintenance (`engine.maintenance`) wakes it; each of its slices takes
well under a second.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from django.db import Error, connection

from workflows.definition import definitions
from workflows.postgres.round_trips import session_of
from workflows.postgres.statements import fetch_row
from workflows.state.transitions import make_due_where

logger = logging.getLogger(__name__)

# Limits of one slice. Writing 1,000 rows takes some 20 ms; in a table that is in no cache, some 100 ms.
SIGNALS, ROWS = 1_000, 1_000
# Pairs of a signal and a workflow that listens by linking id. No index tells which pairs match, so a slice compares
# them all, in 0.4 s.
PAIRS = 1_000_000
# A sender wakes at most this many; maintenance wakes the rest.
ROWS_OF_A_SENDER = 1_000


class Slice(NamedTuple):
    """What a slice of a maintenance task changed, in rows, and the id after which the next one starts (0 is the start).

    `rest`: minimum seconds of rest for the task, because nothing is in sight, or to leave time for others.
    """

    changed: int
    next: int = 0
    rest: float = 0.0


# Signals that the row `w` waits for. Only signals that its attempt has not seen wake a retry: an old signal would wake
# it in a hot loop. So would a signal from another cluster of which this database is a copy, whose transaction ids
# differ.
_SEEN = """w.seen_until IS NOT NULL AND (
    pg_visible_in_snapshot(s.stored_in, w.seen_until) OR s.stored_in >= pg_snapshot_xmax(pg_current_snapshot()))"""
LISTENS = f"s.closed_at IS NULL AND s.name = ANY (w.wake_on) AND s.payload @> w.wake_matching AND NOT ({_SEEN})"
ADDRESSED = (
    f"s.workflow_id = w.id AND (({LISTENS}) OR s.closed_at IS NULL AND s.name = 'cancel' AND NOT w.compensating)"
)
_LINKED = f"""
    s.linking_id = w.linking_id AND {LISTENS}
    AND NOT EXISTS (SELECT FROM workflows_wait a WHERE a.workflow_id = w.id AND a.signal_id = s.id)"""
_ANSWERED = f"""
    (EXISTS (SELECT FROM workflows_signal s WHERE {ADDRESSED})
     OR w.linking_id IS NOT NULL AND EXISTS (SELECT FROM workflows_signal s WHERE {_LINKED}))"""  # noqa: S608 (ours)

_LISTENING = "w.linking_id IS NOT NULL AND w.wake_on <> '{}'"
_ASLEEP = "w.status = 'PENDING' AND w.invisible_until > now()"
# A due workflow counts, too, if it would wait behind the backlog: a child that is cancelled with its parent.
_ASLEEP_OR_FRESH = "w.status = 'PENDING' AND (w.invisible_until > now() OR NOT w.begun)"

# The open wait `j` for children that have all finished.
OPEN_JOIN = """
    j.kind = 'children' AND j.outcome = '' AND NOT j.superseded AND NOT EXISTS (
        SELECT FROM workflows_workflow c
         WHERE c.parent_id = j.workflow_id AND c.parent_wait = j.name AND c.status = 'PENDING')"""


# --- At once ----------------------------------------------------------------------------------------


def wake(workflow_id: int) -> bool:
    """After a commit, make a workflow due that has a signal it waits for. False if it has none, or is locked."""
    return make_due_where(f"w.id = %s AND {_ANSWERED}", [workflow_id]) == 1


def wake_for(signal_id: int) -> int:
    """After a signal's commit, make due at most ROWS_OF_A_SENDER workflows that wait for it; return how many."""
    return _wake_for("s.id = %(signal_id)s", {"signal_id": signal_id, "rows": ROWS_OF_A_SENDER})


def try_wake(workflow_id: int) -> None:
    """Wake a workflow after the commit of its signal. If that fails, maintenance does it a moment later."""
    with leave_the_rest_to_maintenance():
        wake(workflow_id)


@contextmanager
def leave_the_rest_to_maintenance() -> Iterator[None]:
    """Log a database error and go on: the signal is stored, and maintenance wakes the workflow."""
    try:
        yield
    except Error as error:
        logger.warning("a signal is stored, but its workflow is not woken yet: %s", type(error).__name__)
        connection.close_if_unusable_or_obsolete()  # so that the rest of the request can use it


def _wake_for(signals: str, parameters: Mapping[str, Any]) -> int:
    """Make due at most `rows` workflows that wait for the open signals `s` with the condition `signals`; return how
    many.

    Skips locked rows: the worker that holds one checks its signals itself.
    """
    # Adding the empty object unpacks a payload once, not for each workflow; without it 20,000 workflows and 50 signals
    # of 170 kB took 14 s.
    return make_due_where(
        f"""w.id IN (
            WITH s AS MATERIALIZED (
                SELECT id, name, workflow_id, linking_id, payload || '{{}}' AS payload, stored_in, closed_at
                  FROM workflows_signal s WHERE closed_at IS NULL AND {signals})
            (SELECT w.id FROM s JOIN workflows_workflow w ON {ADDRESSED} WHERE {_ASLEEP_OR_FRESH} LIMIT %(rows)s)
            UNION ALL
            (SELECT w.id FROM (SELECT DISTINCT linking_id FROM s) l JOIN workflows_workflow w USING (linking_id)
              WHERE {_ASLEEP} AND {_LISTENING}
                AND EXISTS (SELECT FROM s WHERE {_LINKED}) LIMIT %(rows)s))""",  # noqa: S608 (ours)
        parameters,
    )


# --- Slices of maintenance -------------------------------------------------------------------------------


def wake_by_new_signals(after: int = 0) -> Slice:
    """Wake workflows that wait for one of the newest open signals, whose sender may have died before waking them."""
    newest, _ = _signals_to_compare(order="id DESC")
    if not newest:  # the usual case; planning the next statement would take longer than this check
        return Slice(0)
    return Slice(_wake_for("s.id = ANY (%(ids)s)", {"ids": newest, "rows": ROWS}))


def wake_by_signals(after: int = 0) -> Slice:
    """Wake workflows that wait for one of the open signals after that id."""
    ids, are_all = _signals_to_compare(after)
    if not ids:
        return Slice(0)
    woken = _wake_for("s.id = ANY (%(ids)s)", {"ids": ids, "rows": ROWS})
    if woken >= ROWS:
        return Slice(woken, after)
    return Slice(woken, 0 if are_all else ids[-1])


def _signals_to_compare(after: int = 0, *, order: str = "id") -> tuple[list[int], bool]:
    """The ids of a slice of open signals, in `order` (SQL), and whether none is left after them.

    At most SIGNALS ids, and none beyond those that make PAIRS with the workflows that listen by linking id.
    """
    ((ids, are_all),) = session_of().run(
        f"""
        WITH s AS (
            SELECT id, linking_id FROM workflows_signal WHERE closed_at IS NULL AND id > %(after)s
             ORDER BY {order} LIMIT {SIGNALS}),
        listening AS (
            SELECT linking_id, (SELECT count(*) FROM workflows_workflow w
                                 WHERE w.linking_id = l.linking_id AND {_LISTENING} AND {_ASLEEP}) AS number
              FROM (SELECT DISTINCT linking_id FROM s WHERE linking_id IS NOT NULL) l),
        counted AS (
            SELECT id, coalesce(sum(number) OVER (
                       ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < {PAIRS} AS is_in_slice
              FROM s LEFT JOIN listening USING (linking_id))
        SELECT coalesce(array_agg(id ORDER BY {order}) FILTER (WHERE is_in_slice), '{{}}'),
               count(*) < {SIGNALS} AND count(*) FILTER (WHERE NOT is_in_slice) = 0
          FROM counted""",  # noqa: S608 (ours)
        {"after": after},
    )
    return ids, are_all


def slice_of_signals(after: int) -> tuple[int, int]:
    """The last id of the next SIGNALS open signals after that id, or 0; and where the next slice starts."""
    return slice_of("SELECT id FROM workflows_signal WHERE closed_at IS NULL AND id > %s ORDER BY id", after)


def slice_of(ids: str, after: int) -> tuple[int, int]:
    """The last of the next SIGNALS `ids` (SQL) after that id, or 0; and where the next slice starts."""
    sql = f"SELECT coalesce(max(id), 0), count(*) FROM ({ids} LIMIT {SIGNALS}) slice"  # noqa: S608 (ours)
    last, count = fetch_row(sql, [after])
    return last, last if count == SIGNALS else 0


def wake_parents(after: int = 0) -> Slice:
    """Wake each parent, after that id, whose last child has finished but sent no signal."""
    parents = """SELECT DISTINCT workflow_id AS id FROM workflows_wait
                  WHERE kind = 'children' AND outcome = '' AND NOT superseded AND workflow_id > %s
                  ORDER BY workflow_id"""
    last, next_after = slice_of(parents, after)
    if not last:
        return Slice(0)
    joined = f"""SELECT w.id FROM workflows_wait j JOIN workflows_workflow w ON w.id = j.workflow_id
                  WHERE {OPEN_JOIN} AND {_ASLEEP} AND 'child:' || j.name = ANY (w.wake_on)
                    AND j.workflow_id > %(after)s AND j.workflow_id <= %(last)s"""  # noqa: S608 (ours)
    return Slice(make_due_where(f"w.id IN ({joined})", {"after": after, "last": last}), next_after)


def wake_expired(after: int = 0) -> Slice:
    """Make due the workflows whose `expires_after` is over.

    Only types that this release knows: it would reschedule the others, and the next look would wake them again.
    """
    # statement_timestamp(), because no index is searched by a volatile value such as clock_timestamp().
    expired = f"""w.id IN (
        SELECT w.id FROM workflows_workflow w
         WHERE w.expires_at <= statement_timestamp() AND w.expires_at IS NOT NULL AND NOT w.compensating AND {_ASLEEP}
           AND w.workflow_type = ANY (%(types)s)
         LIMIT %(rows)s)"""  # noqa: S608 (ours)
    return Slice(make_due_where(expired, {"types": list(definitions()), "rows": ROWS}))
