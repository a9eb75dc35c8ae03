"""MAINTENANCE: what the workers do beside the workflows, together. The database says when each task is due.

A task goes slice by slice. Each slice has its own transaction, which locks the task's row: so one worker at a time does
it, and if that worker dies, another goes on. A task that fails does not stop the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from django.db import connection, transaction

from workflows import failpoints
from workflows.effects import reconcile
from workflows.engine import heartbeat, lanes, rollup, unknown_types
from workflows.outages import causes, parking
from workflows.postgres import sqlstates
from workflows.postgres.round_trips import session_of
from workflows.postgres.statements import execute
from workflows.signals import store, waking
from workflows.signals.waking import Slice

logger = logging.getLogger(__name__)


class Task(NamedTuple):
    """`do` does the slice after an id; `every` is seconds, from the last slice to the first of the next round."""

    do: Callable[[int], Slice]
    every: float = 1.0


MAINTENANCE_TASKS = {
    # A release batch a second, whichever worker comes by: with a second of rest each would be late by half of one.
    "release parked": Task(parking.release_parked, every=0.2),
    "forget workers": Task(heartbeat.delete_stale, every=60.0),
    "forget causes": Task(lambda after: Slice(causes.forget_old()), every=60.0),
    "wake expired": Task(waking.wake_expired),
    "wake by new signals": Task(waking.wake_by_new_signals),
    "wake by signals": Task(waking.wake_by_signals),
    "wake parents": Task(waking.wake_parents),
    "ignore late signals": Task(store.ignore_late_signals),
    "go on": Task(lanes.go_on),
    "add up": Task(rollup.add_up, every=rollup.EVERY),
    "forget minutes": Task(rollup.forget, every=60.0),
}

# Seconds that a worker gives them at a time, before it claims the next workflow.
AT_A_TIME = 0.25
# A slice that changes nothing rests twenty times as long as it took: each maintenance task that finds nothing takes a
# twentieth of one worker's time at the most, however many workers there are.
REST = 20
# Seconds that each statement of a slice may take, and until the next try of one that failed: no rest is longer than
# that.
LONGEST_SLICE, AFTER_FAILURE = 3.0, 60.0
# Seconds that a worker may be silent in a slice: one that is stopped there would keep the maintenance task from all
# others for as long as its lease, which the longest step of all decides.
LONGEST_SILENCE = 10.0


def run(seconds: float = AT_A_TIME) -> None:
    """Do slices of what is due, for so many seconds. Raises a database error when the connection is lost."""
    until = monotonic() + seconds
    while monotonic() < until and _run_slice():
        pass


def _run_slice() -> bool:
    """Do a slice of the task that has been due the longest. False when none is due that no other worker does."""
    with transaction.atomic(durable=True):
        due = _lock_due()
        if due is None:
            return False
        name, after = due
        task = MAINTENANCE_TASKS[name]
        started = monotonic()
        try:
            changed, next_after, at_least = do_slice(task, after)
        except Exception as error:
            if connection.is_usable():
                _fail(name, error)
                return True
            raise
        took = monotonic() - started
        rest = 0.0 if changed else min(took * REST, AFTER_FAILURE)
        at_least = min(at_least, AFTER_FAILURE)
        _succeed(name, next_after, max(rest, at_least, 0.0 if changed or next_after else task.every))
        if changed:
            failpoints.reach("before_chore", name)
    if changed:
        failpoints.reach("after_chore", name)
    return True


def do_slice(task: Task, after: int) -> Slice:
    """Do one slice, in a savepoint if there is a transaction: what it has changed is all there, or not."""
    with transaction.atomic():
        return task.do(after)


def _lock_due() -> tuple[str, int] | None:
    """Lock the row of a maintenance task that is due; its name, and after which id to go on.

    A time further ahead than any rest is that of a clock which has been set back: such a maintenance task is due.
    """
    rests = {name: max(task.every, AFTER_FAILURE) for name, task in MAINTENANCE_TASKS.items()}
    rows = session_of().run(
        """SELECT name, after, set_config('statement_timeout', %(timeout)s, true),
                  set_config('idle_in_transaction_session_timeout', %(silence)s, true) FROM (
               SELECT name, after FROM workflows_chore chore
                 JOIN unnest(%(names)s::text[], %(rests)s::float8[]) AS known (name, rest) USING (name)
                WHERE NOT due_at BETWEEN clock_timestamp() AND clock_timestamp() + make_interval(secs => 2 * rest)
                ORDER BY due_at, name LIMIT 1 FOR NO KEY UPDATE OF chore SKIP LOCKED) due""",
        {
            "names": list(rests),
            "rests": list(rests.values()),
            "timeout": f"{LONGEST_SLICE}s",
            "silence": f"{LONGEST_SILENCE}s",
        },
    )
    return (rows[0][0], rows[0][1]) if rows else None


def _succeed(name: str, after: int, rest: float) -> None:
    session_of().run(
        """UPDATE workflows_chore SET after = %(after)s, due_at = clock_timestamp() + make_interval(secs => %(rest)s),
                  failing_since = NULL, error = ''
            WHERE name = %(name)s""",
        {"name": name, "after": after, "rest": rest},
    )


def _fail(name: str, error: Exception) -> None:
    why = sqlstates.loggable(error) if isinstance(error, sqlstates.DATABASE_ERRORS) else type(error).__name__
    logger.error(
        "the maintenance task %r failed, and is tried again in %.0f s: %s", name, AFTER_FAILURE, why, exc_info=error
    )
    execute(
        """UPDATE workflows_chore SET due_at = clock_timestamp() + make_interval(secs => %(rest)s),
                  failing_since = coalesce(failing_since, clock_timestamp()), error = %(error)s
            WHERE name = %(name)s""",
        {"name": name, "rest": AFTER_FAILURE, "error": why},
    )


def make_due_for_this_release(queue: str) -> None:
    """As a worker starts: make due what waited for a release that knows its type, or that can look up a call."""
    waited_for = {"a release that knows them": unknown_types.make_due, "a lookup": reconcile.make_answerable_due}
    for what, make_due in waited_for.items():
        if made := make_due(queue):
            logger.info("%s workflows waited for %s, and are due now", made, what)


def make_known() -> None:
    """Give each task of this release its row, if it has none. Each worker does so at its start, and once a minute."""
    execute(
        "INSERT INTO workflows_chore (name) SELECT unnest(%s::text[]) ON CONFLICT (name) DO NOTHING",
        [list(MAINTENANCE_TASKS)],
    )
