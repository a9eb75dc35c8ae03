"""CLAIM: find the next due workflow, and lock its row (docs/internals/claim.md)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from time import monotonic
from typing import Any, NamedTuple

from django.conf import settings
from django.db import models
from pydantic_core import from_json

from workflows.engine.lanes import Lane, Lanes
from workflows.models import Workflow
from workflows.postgres.round_trips import session_of
from workflows.signals import store

# Seconds between full looks, from the oldest due row on; all workers share them. At once a second, in a backlog, rows
# that became due behind the watermark were found 0.5 to 1 s late.
FULL_LOOK_EVERY = 0.25

# Every fourth claim prefers workflows that have not started: otherwise a flood of retries would let none start.
FRESH_EVERY = 4

# A row becomes visible when its transaction commits, a moment after its due time. So an empty look says nothing about
# the last second. One second has few dead index entries.
SEEN_AFTER = "1 second"

COMPENSATION = "compensation"

# A due time and an id, as text: the types never vary, so there is one plan. The first watermark precedes all rows.
Watermark = tuple[str, str]
THE_START: Watermark = ("-infinity", "0")

# The pools in which a worker looks, and the condition for the rows of each.
POOLS = {"begun": "begun", "fresh": "NOT begun", "compensating": "compensating"}
FRESH = "fresh"
# One lane, looked at in place of the whole pool: see workflows.engine.lanes.
LANE = "lane"
_IN = {
    **POOLS,
    LANE: """NOT begun AND priority = %(priority)s::smallint AND workflow_type = %(workflow_type)s::text
                       AND tenant = %(tenant)s::text""",
}

# All columns by name: the plan of a prepared statement with `SELECT *` fails when a migration adds a column.
_FIELDS = Workflow._meta.concrete_fields
_COLUMNS = ", ".join(f"due.{field.column}" for field in _FIELDS)
_NAMES = [field.attname for field in _FIELDS]
_JSON = [(field.attname, at) for at, field in enumerate(_FIELDS) if isinstance(field, models.JSONField)]


class Claim(NamedTuple):
    """A workflow whose row is locked by the transaction that claimed it."""

    workflow: Workflow
    xid: str  # of that transaction
    cancelled: bool  # a person has asked to cancel it
    expires_in: float  # seconds; infinite unless its definition says `expires_after`
    reads: Sequence[Any]  # the results of the features' SQL: see `engine.extension.Part`
    traceparent: str = ""


class DueWorkflows:
    """The due workflows of one queue, in the order in which a worker takes them. `only` may be "compensation".

    `reads` is SQL that features want run with a claim; `leaves` is SQL for the rows that they leave to other workers.
    `live_workers` counts the workers of the same queue, including this one; they share the full looks.
    """

    def __init__(self, queue: str, *, only: str = "", reads: Sequence[str] = (), leaves: Sequence[str] = ()) -> None:
        self._reads, self._leaves = tuple(reads), tuple(leaves)
        self.live_workers = 1
        self.lanes = Lanes(queue)
        self.is_cut_short = False
        self._queue = queue
        self._pools = ["compensating"] if only == COMPENSATION else ["begun", FRESH]
        self._claims = 0
        # For each pool or lane: no row that became due before this is due, except rows that other workers hold.
        self._watermarks: dict[str | Lane, Watermark] = {}
        self._full_look_at = float("-inf")
        self._is_full_look = False  # about the last look, or the full look that it continues
        self._luck = 1.0

    def claim_next(self, *, thorough: bool = True) -> Claim | None:
        """Lock the next due row; None when none is due or other workers hold all due rows.

        Unless `thorough`, rows behind the watermark may be missed until the next full look. A look that was cut short
        continues with the next call, until it has tried all lanes.
        """
        goes_on = self.is_cut_short
        if goes_on or monotonic() < self._full_look_at + self._full_look_every():
            self._is_full_look = goes_on and self._is_full_look
            claim = self._look()
            if claim or not thorough or self._is_full_look:
                return claim
        self._is_full_look = True
        self._full_look_at, self._luck = monotonic(), random.expovariate(1)
        self._watermarks.clear()
        if FRESH in self._pools:
            self.lanes.read()
            self.lanes.look()
        return self._look()

    def _full_look_every(self) -> float:
        """Seconds, at random: workers that start together would otherwise all look at once, and then none for long."""
        return FULL_LOOK_EVERY * (1 + (self.live_workers - 1) * self._luck)

    def _look(self) -> Claim | None:
        """Run one statement, even if the first pool is empty, and one more for each lane that proves empty.

        If a place under a cap was taken in vain, the look is cut short (`is_cut_short`): the next transaction may find
        more.
        """
        self.is_cut_short = False
        pools = self._pools[::-1] if (self._claims + 1) % FRESH_EVERY == 0 else self._pools
        self.lanes.read()
        if FRESH not in pools or not self.lanes.are_used:  # mostly
            return self._look_in(pools)
        self.lanes.turns.live_workers = self.live_workers
        for lane in self.lanes.in_order():
            if self.lanes.is_capped(lane):
                if pools[0] != FRESH and (claim := self._look_in(pools[:1])):
                    return claim
                places = self.lanes.take_places(lane)
                full = [key for key, is_taken in places.items() if not is_taken]
                if not full and (claim := self._look_in([LANE], lane)):
                    return claim
                if full:
                    self.lanes.leave_out(lane, full)
                if len(full) < len(places):  # places last until this transaction ends: it must claim nothing else
                    self.is_cut_short = self.lanes.may_begin()
                    return None
                pools = pools if pools[0] == FRESH else [FRESH]
                continue
            if claim := self._look_in([LANE if pool == FRESH else pool for pool in pools], lane):
                return claim
            pools = [FRESH]
        if self.lanes.are_used:  # and none of them may start
            pools = [pool for pool in pools if pool != FRESH]
        return self._look_in(pools) if pools else None

    def _look_in(self, pools: Sequence[str], lane: Lane | None = None) -> Claim | None:
        parameters: dict[str, Any] = {"queue": self._queue, "release": settings.RELEASE}
        parameters |= lane._asdict() if lane else {}
        keys = {pool: lane if lane and pool == LANE else pool for pool in pools}
        for pool, key in keys.items():
            parameters[f"{pool}_due"], parameters[f"{pool}_id"] = self._watermarks.get(key, THE_START)
        (found,) = session_of().run(_sql_of(tuple(pools), self._reads, self._leaves), parameters)
        return self._taken(keys, found)

    def _taken(self, keys: Mapping[str, str | Lane], found: Sequence[Any]) -> Claim | None:
        """Turn the result of a look into a Claim, from the first pool that had a due row, and move the watermarks."""
        found_in, looked_at, xid, cancelled, expires_in, *row = found
        for pool, key in keys.items():
            if found_in == pool:
                self._claims += 1
                reads, row = row[: len(self._reads)], row[len(self._reads) :]
                if isinstance(key, Lane):
                    self.lanes.begin(key)
                columns = dict(zip(_NAMES, row, strict=True)) | {name: from_json(row[at]) for name, at in _JSON}
                traceparent = columns.pop("traceparent")  # only spans need it
                workflow = Workflow.of_row(columns)
                if workflow.begun:
                    self.lanes.go_on_with(workflow)
                self._watermarks[key] = (workflow.invisible_until.isoformat(), str(workflow.id))
                expires_in = float("inf") if expires_in is None else expires_in
                return Claim(workflow, xid, cancelled, expires_in, reads, traceparent)
            self._watermarks[key] = (looked_at, "0")
            if isinstance(key, Lane):
                self.lanes.leave_out(key)
        return None


@cache
def _sql_of(pools: tuple[str, ...], reads: tuple[str, ...], leaves: tuple[str, ...]) -> str:
    """The statement that looks in these pools in turn, each from its watermark on."""
    reading = "".join(f"CASE WHEN due.id IS NOT NULL THEN ({sql}) END, " for sql in reads)
    looks = " UNION ALL ".join(_sql_in(pool, leaves) for pool in pools)
    return f"""
        SELECT pool, looked_at::text,
               CASE WHEN due.id IS NOT NULL THEN pg_current_xact_id()::text END AS claim_xid,
               {store.cancel_requested_sql("due.id")} AS cancelled,
               extract(epoch FROM expires_at - clock_timestamp())::float AS expires_in,
               {reading}{_COLUMNS}
          FROM (SELECT now() - interval '{SEEN_AFTER}' AS looked_at) look
          LEFT JOIN ({looks} LIMIT 1) due ON true"""  # noqa: S608 (ours)


def _sql_in(pool: str, leaves: Sequence[str]) -> str:
    """The next due row of a pool, locked."""
    left = "".join(f"AND ({sql}) IS NOT TRUE " for sql in leaves)
    # NO KEY UPDATE does not block inserts that refer to the row: they take KEY SHARE locks.
    return f"""SELECT *, '{pool}' AS pool FROM (
                SELECT * FROM workflows_workflow
                 WHERE status = 'PENDING' AND queue = %(queue)s AND {_IN[pool]} AND invisible_until <= now()
                       AND (invisible_until, id) >= (%({pool}_due)s::timestamptz, %({pool}_id)s::bigint)
                       {left}
                 ORDER BY invisible_until, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) {pool}"""  # noqa: S608 (ours)
