"""ROLLUP: adds up by the minute how many workflows came, finished and failed, what attempts did, and how long it took.

Workers only store their transaction's id on a row that they write anyway: `entered_xid` of a workflow, `closed_xid` of
an attempt, `finished_xid` of the event with which a workflow finishes. A maintenance task counts what has been
committed since its last run, each row once: its sums and its snapshot commit together (docs/internals/rollup.md).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from workflows import failpoints
from workflows.errors import Braked, ServiceBusy, ServiceUnavailable
from workflows.models import Event
from workflows.models.rollup import BOUNDS, PARKED, Grain, Metric
from workflows.postgres.statements import execute, fetch_one, fetch_row, literals
from workflows.signals.waking import Slice

logger = logging.getLogger(__name__)

# Rows of each table in a slice, plus the rest of its last transaction. 1,000 attempts of 21 steps take 100 ms.
ROWS = 1_000
# Seconds between rounds. Each round updates the rows of this minute, hour and day, and the totals. While a transaction
# stays open, all old versions of these rows stay, and slow down reads.
EVERY = 10.0
# How long the rows of each grain are stored. The totals stay, because a counter never goes down.
KEPT = {Grain.MINUTE: "2 days", Grain.HOUR: "35 days", Grain.DAY: "400 days"}
# Rows that a slice deletes.
FORGOTTEN = 5_000

_NAME = "all"
# The columns with the transaction ids of new rows.
_STAMPS = (
    ("workflows_workflow", "entered_xid", "workflow_floor"),
    ("workflows_attempt", "closed_xid", "attempt_floor"),
    ("workflows_attempt", "corrected_xid", "attempt_floor"),
    ("workflows_event", "finished_xid", "event_floor"),
)


class SeenBy(NamedTuple):
    """A `pg_snapshot`: it sees every transaction before `end` except those that were `open`."""

    end: int
    open: list[int]

    @classmethod
    def read(cls, snapshot: str) -> SeenBy:
        _, end, opened = snapshot.split(":")
        return cls(int(end), [int(each) for each in opened.split(",") if each])

    def until(self, last: int) -> SeenBy:
        """The same snapshot, without the transactions after `last`."""
        return SeenBy(last + 1, [each for each in self.open if each <= last])

    def __str__(self) -> str:
        return f"{min([*self.open, self.end])}:{self.end}:{','.join(map(str, sorted(self.open)))}"


class Progress(NamedTuple):
    """The snapshot up to which all is counted, and the present one."""

    seen: SeenBy
    now: SeenBy
    floors: dict[str, int]


# --- Count --------------------------------------------------------------------------------------------


def add_up(after: int = 0) -> Slice:
    """Maintenance: count what has been committed since the last slice, or the oldest part of it.

    The task's row is locked, so only one worker runs this at a time.
    """
    progress = _progress()
    last = _last_of_slice(progress)
    until = progress.now if last is None else progress.now.until(last)
    added = execute(
        _ADD,
        {
            **progress.floors,
            "seen": str(progress.seen),
            "seen_end": str(progress.seen.end),
            "seen_open": [str(each) for each in progress.seen.open],
            "until": str(until),
            "until_end": str(until.end),
            "grains": list(Grain),
        },
    )
    execute("UPDATE workflows_rollupprogress SET seen = %s::pg_snapshot WHERE name = %s", [str(until), _NAME])
    if added:
        failpoints.reach("before_chore", "add up")
    return Slice(0 if last is None else added)


# A standby that was promoted gives out again the ids of transactions that were open then, and of which it had got
# nothing. All that it has got before the last slice's commit is older, so these ids alone may lie ahead.
_IS_OURS = """
    server = system_identifier::text
    AND greatest(0, pg_snapshot_xmax(seen)::text::bigint - pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
        = (SELECT count(*) FROM pg_snapshot_xip(seen) open WHERE open >= pg_snapshot_xmax(pg_current_snapshot()))"""


def _progress() -> Progress:
    """Where the last slice ended. In a database from another server it starts again from now."""
    execute(
        """WITH made AS (
               INSERT INTO workflows_rollupprogress (name, seen, server)
               SELECT %s, '1:1:', system_identifier::text FROM pg_control_system()
               ON CONFLICT (name) DO NOTHING RETURNING name)
           DELETE FROM workflows_rollup WHERE EXISTS (SELECT FROM made)""",
        [_NAME],
    )
    seen, now, *floors, is_ours = fetch_row(
        f"""SELECT seen::text, pg_current_snapshot()::text, workflow_floor, attempt_floor, event_floor, {_IS_OURS}
              FROM workflows_rollupprogress, pg_control_system() WHERE name = %s""",  # noqa: S608 (ours)
        [_NAME],
    )
    if is_ours:
        names = ("workflow_floor", "attempt_floor", "event_floor")
        return Progress(SeenBy.read(seen), SeenBy.read(now), dict(zip(names, floors, strict=True)))
    logger.warning("the rollup starts again, from now on: its transaction ids are those of another database server")
    execute(
        """UPDATE workflows_rollupprogress SET seen = pg_current_snapshot(),
                  server = (SELECT system_identifier::text FROM pg_control_system()),
                  workflow_floor = (SELECT coalesce(max(id), 0) FROM workflows_workflow),
                  attempt_floor = (SELECT coalesce(max(id), 0) FROM workflows_attempt),
                  event_floor = (SELECT coalesce(max(id), 0) FROM workflows_event)
            WHERE name = %s""",
        [_NAME],
    )
    return _progress()


def _last_of_slice(progress: Progress) -> int | None:
    """The last transaction of a slice of so many rows; None if all new rows fit into one.

    ORDER BY names the table to sort by the column and its index. Without it, the sort would be by the text.
    """
    ends = [
        fetch_one(
            f"""SELECT {stamp}::text FROM {table}
                 WHERE {stamp} >= %(seen)s::xid8 AND {stamp} < %(now)s::xid8 AND id > %(floor)s
                 ORDER BY {table}.{stamp} OFFSET %(rows)s LIMIT 1""",  # noqa: S608 (ours)
            {
                "seen": str(progress.seen.end),
                "now": str(progress.now.end),
                "floor": progress.floors[floor],
                "rows": ROWS - 1,
            },
        )
        for table, stamp, floor in _STAMPS
    ]
    return min((int(end[0]) for end in ends if end), default=None)


def _is_new(row: str, stamp: str, floor: str) -> str:
    """SQL: the row was committed after the last slice, and belongs to this one."""
    stamp = f"{row}.{stamp}"
    return f"""(({stamp} >= %(seen_end)s::xid8 AND {stamp} < %(until_end)s::xid8)
                OR {stamp} = ANY (%(seen_open)s::xid8[]))
            AND pg_visible_in_snapshot({stamp}, %(until)s::pg_snapshot) AND {row}.id > %({floor})s"""


def _bucket(metric: Metric, seconds: str = "seconds") -> str:
    """SQL: the index of the first bound that is not less than the seconds; after the last, the number of bounds."""
    bounds = BOUNDS[metric]
    upwards = ", ".join(str(-each) for each in reversed(bounds))
    return f"{len(bounds)} - width_bucket(-({seconds})::float8, ARRAY[{upwards}]::float8[])"


# A compensation has the verdict of the failure or cancellation before it. A run starts with the submission, or with the
# event that reopened a finished workflow.
_FINISHED = f"""
    finished AS (
        SELECT f.id, f.workflow_id, f.at, f.attempt,
               coalesce(verdict.kind, f.kind) AS kind, coalesce(verdict.step, f.step) AS step,
               coalesce(verdict.detail, f.detail) AS detail
          FROM workflows_event f
          LEFT JOIN LATERAL (
               SELECT kind, step, detail FROM workflows_event e
                WHERE f.kind = 'compensated' AND e.workflow_id = f.workflow_id AND e.id < f.id
                  AND e.kind IN {literals(Event.VERDICTS)} ORDER BY e.id DESC LIMIT 1) verdict ON true
         WHERE {_is_new("f", "finished_xid", "event_floor")}),
    timed AS (
        SELECT f.at, w.workflow_type, f.step, f.kind, f.detail,
               greatest(0, extract(epoch FROM f.at - run.since))::float8 AS seconds,
               coalesce(waited.seconds, 0)::float8 AS waited
          FROM finished f
          JOIN workflows_workflow w ON w.id = f.workflow_id
          CROSS JOIN LATERAL (
               SELECT max(id) AS id FROM workflows_event e
                WHERE f.attempt IS DISTINCT FROM 1 AND e.workflow_id = f.workflow_id AND e.id < f.id
                  AND e.finished_xid IS NOT NULL) before
          CROSS JOIN LATERAL (
               SELECT coalesce(min(e.at), w.created_at) AS since
                 FROM workflows_event e
                WHERE f.attempt IS DISTINCT FROM 1 AND e.workflow_id = f.workflow_id AND e.id < f.id
                  AND e.id > before.id AND e.kind IN {literals(Event.STARTS_RUN)}) run
          CROSS JOIN LATERAL (
               SELECT sum(greatest(0, extract(epoch FROM until - closed_at))) AS seconds FROM (
                   SELECT outcome, closed_at,
                          lead(coalesce(due_since, opened_at), 1, f.at) OVER (ORDER BY number) AS until
                     FROM workflows_attempt a
                    WHERE f.attempt IS DISTINCT FROM 1 AND a.workflow_id = f.workflow_id
                      AND a.opened_at BETWEEN run.since AND f.at) run
                WHERE outcome IN ('waiting', 'held')) waited)"""  # noqa: S608 (ours)

# If a row is corrected after this slice, the slice counts its earlier state: vanished, without steps. If an earlier
# slice has counted it as vanished, this slice subtracts that.
_ATTEMPTS = f"""
    closed AS (
        SELECT a.*, coalesce(pg_visible_in_snapshot(corrected_xid, %(until)s::pg_snapshot), true) AS stands
          FROM workflows_attempt a WHERE {_is_new("a", "closed_xid", "attempt_floor")}),
    corrected AS (
        SELECT * FROM workflows_attempt a
         WHERE {_is_new("a", "corrected_xid", "attempt_floor")}
           AND pg_visible_in_snapshot(closed_xid, %(seen)s::pg_snapshot)),
    ended AS (
        SELECT w.workflow_type, a.* FROM (
            SELECT workflow_id, number, release, closed_at,
                   CASE WHEN stands THEN outcome ELSE 'vanished' END AS outcome,
                   CASE WHEN stands THEN steps_in_short ELSE '' END AS in_short,
                   CASE WHEN stands THEN steps ELSE '[]' END AS in_full, false AS is_correction
              FROM closed
             UNION ALL
            SELECT workflow_id, number, release, closed_at, outcome, steps_in_short, steps, true FROM corrected) a
          JOIN workflows_workflow w ON w.id = a.workflow_id)"""  # noqa: S608 (ours)

# Codes that stop a step before it calls its service: a brake, an open circuit, a cap. Nothing was refused.
NOT_TRIED = (Braked.CODE, ServiceUnavailable.CODE, ServiceBusy.CODE)

# Parses steps as `models.steps_on_record` does.
_STEPS = f"""
    steps AS (
        SELECT workflow_id, number, closed_at, workflow_type, split_part(word, ' ', 1) AS step,
               CASE split_part(word, ' ', 3) WHEN '' THEN 'ran' ELSE split_part(word, ' ', 2) END AS outcome,
               '' AS code, false AS undo, substring(word FROM ' ([0-9]+[.]?[0-9]*)$')::float8 / 1000 AS seconds
          FROM ended CROSS JOIN LATERAL string_to_table(in_short, ', ') word WHERE position(' ' IN word) > 0
         UNION ALL
        SELECT workflow_id, number, closed_at, workflow_type, each ->> 'step',
               CASE WHEN each ->> 'error_code' IN {NOT_TRIED} THEN '{PARKED}' ELSE each ->> 'outcome' END,
               coalesce(nullif(each ->> 'error_code', ''), each ->> 'error_class', ''), each ? 'undo',
               CASE jsonb_typeof(each -> 'ms') WHEN 'number' THEN (each ->> 'ms')::float8 / 1000 END
          FROM ended CROSS JOIN LATERAL jsonb_array_elements(
               CASE jsonb_typeof(in_full) WHEN 'array' THEN in_full ELSE '[]' END) each)"""  # noqa: S608 (ours)

_FACTS = rf"""
    facts (at, metric, workflow_type, step, outcome, code, count, seconds, bucket) AS (
        SELECT created_at, '{Metric.STARTED}', workflow_type, '', '', '', 1, 0, NULL::int
          FROM workflows_workflow w WHERE {_is_new("w", "entered_xid", "workflow_floor")}
         UNION ALL
        SELECT at, '{Metric.FINISHED}', workflow_type, CASE kind WHEN 'completed' THEN '' ELSE step END,
               CASE kind WHEN 'completed' THEN 'complete' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END,
               coalesce(nullif(detail ->> 'error_code', ''), detail ->> 'error_class', ''),
               1, seconds, {_bucket(Metric.FINISHED)}
          FROM timed
         UNION ALL
        SELECT at, '{Metric.ACTIVE}', workflow_type, '', '', '',
               1, greatest(0, seconds - waited), {_bucket(Metric.ACTIVE, "greatest(0, seconds - waited)")}
          FROM timed
         UNION ALL
        SELECT at, '{Metric.WAITING}', workflow_type, '', '', '', 1, waited, {_bucket(Metric.WAITING, "waited")}
          FROM timed
         UNION ALL
        SELECT closed_at, '{Metric.ATTEMPT}', workflow_type, '', outcome, '', 1, 0, NULL FROM ended
         UNION ALL
        SELECT closed_at, '{Metric.ATTEMPT}', workflow_type, '', 'vanished', '', -1, 0, NULL
          FROM ended WHERE is_correction
         UNION ALL
        SELECT closed_at, '{Metric.RELEASE}', '', '', '', release, 1, 0, NULL
          FROM ended WHERE release <> '' AND NOT is_correction
         UNION ALL
        SELECT closed_at, '{Metric.CORRECTED}', workflow_type, '', '', '', 1, 0, NULL FROM ended WHERE is_correction
         UNION ALL
        SELECT closed_at, CASE WHEN undo THEN '{Metric.UNDO}' ELSE '{Metric.STEP}' END, workflow_type, step, outcome,
               code, 1, coalesce(seconds, 0), {_bucket(Metric.STEP, "coalesce(seconds, 0)")}
          FROM steps WHERE step IS NOT NULL AND outcome IS NOT NULL
         UNION ALL
        SELECT closed_at, '{Metric.RERUN}', workflow_type, step, '', '', 1, 0, NULL
          FROM steps
         WHERE number > 1  -- a first attempt has none before: it spares the lookups
           AND outcome = 'ran' AND EXISTS (
               SELECT FROM workflows_attempt earlier
                WHERE earlier.workflow_id = steps.workflow_id AND earlier.number < steps.number
                  AND earlier.steps_in_short ~ ('(^|, )' || regexp_replace(step, '\W', '\\\&', 'g') || ' [0-9]')))"""  # noqa: S608 (ours)

_LABELS = "metric, workflow_type, step, outcome, code"
_BUCKETS = range(max(map(len, BOUNDS.values())) + 1)
_ADD = f"""
    WITH {_FINISHED}, {_ATTEMPTS}, {_STEPS}, {_FACTS},
    minutes AS (
        SELECT date_trunc('minute', at) AS at, {_LABELS}, sum(count) AS count, sum(seconds) AS seconds,
               count(bucket) > 0 AS has_buckets,
               {", ".join(f"count(*) FILTER (WHERE bucket = {n}) AS b{n}" for n in _BUCKETS)}
          FROM facts GROUP BY 1, {_LABELS})
    INSERT INTO workflows_rollup AS known (grain, at, {_LABELS}, count, seconds, buckets)
    SELECT grain,
           CASE grain WHEN '{Grain.TOTAL}' THEN 'epoch'::timestamptz ELSE date_trunc(grain, at, 'UTC') END,
           {_LABELS}, sum(count), sum(seconds),
           CASE WHEN bool_or(has_buckets) THEN ARRAY[{", ".join(f"sum(b{n})" for n in _BUCKETS)}] ELSE '{{}}' END
      FROM minutes CROSS JOIN unnest(%(grains)s::text[]) grain
     GROUP BY 1, 2, {_LABELS}
        ON CONFLICT (grain, metric, at, workflow_type, step, outcome, code) DO UPDATE
       SET count = known.count + excluded.count, seconds = known.seconds + excluded.seconds,
           buckets = ARRAY(SELECT a + b FROM unnest(known.buckets, excluded.buckets) WITH ORDINALITY pair (a, b, n)
                            ORDER BY n)"""  # noqa: S608 (ours)


# --- Forget -------------------------------------------------------------------------------------------


def forget(after: int = 0) -> Slice:
    """Maintenance: delete the rows of minutes, hours and days that are older than KEPT."""
    deleted = 0
    for grain, kept in KEPT.items():
        deleted += execute(
            """DELETE FROM workflows_rollup WHERE ctid = ANY (ARRAY(
                   SELECT ctid FROM workflows_rollup
                    WHERE grain = %(grain)s AND metric = ANY (%(metrics)s)
                      AND at < clock_timestamp() - %(kept)s::interval LIMIT %(rows)s))""",
            {"grain": grain, "metrics": list(Metric), "kept": kept, "rows": FORGOTTEN},
        )
    return Slice(deleted)
