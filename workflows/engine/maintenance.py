"""MAINTENANCE: tasks that the workers share, beside the workflows. The database says when each task is due.

A task is done in slices. The worker first commits that it begins a slice; the slice then has a transaction of its own,
which locks the task's row. So only one worker at a time does the task, and if that worker dies, the next one knows it
and continues. After three deaths in a row the task is set aside until a person lets it go on (`operations.chores`). A
task that fails, or is set aside, does not stop the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from django.db import connection, transaction

from workflows import failpoints
from workflows.effects import reconcile
from workflows.engine import heartbeat, lanes, unknown_types
from workflows.postgres import sqlstates
from workflows.postgres.round_trips import session_of
from workflows.postgres.statements import execute
from workflows.signals import store, waking
from workflows.signals.waking import Slice

if TYPE_CHECKING:
    from workflows.engine.extension import Feature

logger = logging.getLogger(__name__)


class Task(NamedTuple):
    """A maintenance task. `do` does the slice after an id; `every` is seconds from the last slice to the next round.

    `set_aside` sets aside only the one item, in the slice after an id, in which workers die. It returns the id after
    which to continue; None if there is no such item.
    """

    do: Callable[[int], Slice]
    every: float = 1.0
    set_aside: Callable[[int], int | None] = lambda after: None


ENGINE_TASKS = {
    "forget workers": Task(heartbeat.delete_stale, every=60.0),
    "wake expired": Task(waking.wake_expired),
    "wake by new signals": Task(waking.wake_by_new_signals),
    "wake by signals": Task(waking.wake_by_signals),
    "wake parents": Task(waking.wake_parents),
    "ignore late signals": Task(store.ignore_late_signals),
    "go on": Task(lanes.go_on),
}

# Seconds of maintenance at a time, before the worker claims the next workflow.
AT_A_TIME = 0.25
# A slice that changes nothing rests twenty times as long as it took. So an idle task takes at most a twentieth of one
# worker's time, however many workers there are.
REST = 20
# Seconds for each statement of a slice; and seconds until a failed slice is tried again, also the longest rest.
LONGEST_SLICE, AFTER_FAILURE = 3.0, 60.0
# Seconds that a worker may be silent in a slice. Without this, a frozen worker would block the task for all others
# until its lease ends, which is as long as the longest step.
LONGEST_SILENCE = 10.0
# Deaths in a row in slices of one task, as for a workflow (`engine.poison`).
DEATHS = 3


def tasks_of(features: Iterable[Feature]) -> dict[str, Task]:
    """The tasks of the engine and of these features, by name."""
    tasks = dict(ENGINE_TASKS)
    for feature in features:
        tasks.update(feature.chores)
    return tasks


class Begun(NamedTuple):
    """A slice that a worker has begun; `at`, in the database's time, identifies it."""

    name: str
    after: int
    at: datetime
    deaths: int


class Maintenance:
    """The maintenance of one worker with these features."""

    def __init__(self, features: Iterable[Feature]) -> None:
        self._tasks = tasks_of(features)
        # A slice that this worker began and could not end, because it lost the database. The worker did not die in it.
        self._lost: Begun | None = None

    def make_known(self) -> None:
        """Insert the missing rows of tasks. Each worker does so at its start, and once a minute."""
        execute(
            "INSERT INTO workflows_chore (name) SELECT unnest(%s::text[]) ON CONFLICT (name) DO NOTHING",
            [list(self._tasks)],
        )

    def run(self, seconds: float = AT_A_TIME) -> None:
        """Do due slices for this many seconds. Raises a database error when the connection is lost."""
        until = monotonic() + seconds
        while monotonic() < until and self._run_slice():
            pass

    def forget_lost(self) -> None:
        """When the database is back, and before a long step, clear the lost slice, so that it does not count as a
        death.

        It stays if another worker has begun a slice of the task since.
        """
        if self._lost is not None:
            sql = "UPDATE workflows_chore SET begun_at = NULL WHERE name = %s AND begun_at = %s"
            execute(sql, [self._lost.name, self._lost.at])
            self._lost = None

    def _run_slice(self) -> bool:
        """Do a slice of the task that has been due the longest. Returns False when none is due and free."""
        self.forget_lost()
        begun = _begin_due(self._tasks)
        if begun is None:
            return False
        try:
            return _carry_out(self._tasks[begun.name], begun)
        except Exception:
            self._lost = begun
            raise


def _carry_out(task: Task, begun: Begun) -> bool:
    name = begun.name
    with transaction.atomic(durable=True):
        if not _lock(begun):
            return True  # this process was frozen meanwhile, and another worker has begun the task
        if begun.deaths >= DEATHS:
            _set_aside(task, begun)
            return True
        failpoints.reach("in_chore", name)
        started = monotonic()
        try:
            changed, next_after, at_least = do_slice(task, begun.after)
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
    """Do one slice, in a savepoint if a transaction is open, so that it is done as a whole or not at all."""
    with transaction.atomic():
        return task.do(after)


def _begin_due(tasks: Mapping[str, Task]) -> Begun | None:
    """Begin the due task; this is committed before any work, so that a death is noticed.

    Until the slice ends, the task is not due for as long as a worker may be silent. A due time further ahead than any
    rest comes from a clock that was set back since; such a task is due. The commit does not wait for the disk, so a
    crash of the server may forget the begin, and with it a death.
    """
    rests = {name: max(task.every, AFTER_FAILURE) for name, task in tasks.items()}
    rows = session_of().run(
        """WITH due AS MATERIALIZED (
               SELECT name, set_config('synchronous_commit', 'off', true) FROM workflows_chore chore
                 JOIN unnest(%(names)s::text[], %(rests)s::float8[]) AS known (name, rest) USING (name)
                WHERE set_aside_at IS NULL
                  AND NOT due_at BETWEEN clock_timestamp() AND clock_timestamp() + make_interval(secs => 2 * rest)
                ORDER BY due_at, name LIMIT 1 FOR NO KEY UPDATE OF chore SKIP LOCKED)
           UPDATE workflows_chore chore
              SET begun_at = clock_timestamp(), deaths = deaths + (begun_at IS NOT NULL)::int,
                  due_at = clock_timestamp() + make_interval(secs => %(silence)s)
             FROM due WHERE chore.name = due.name RETURNING chore.name, after, begun_at, deaths""",
        {"names": list(rests), "rests": list(rests.values()), "silence": LONGEST_SILENCE},
    )
    return Begun(*rows[0]) if rows else None


def _lock(begun: Begun) -> bool:
    """Lock the task's row, unless another worker has begun the task since."""
    rows = session_of().run(
        """SELECT set_config('statement_timeout', %(timeout)s, true),
                  set_config('idle_in_transaction_session_timeout', %(silence)s, true)
             FROM workflows_chore WHERE name = %(name)s AND begun_at = %(at)s FOR NO KEY UPDATE SKIP LOCKED""",
        {
            "name": begun.name,
            "at": begun.at,
            "timeout": f"{LONGEST_SLICE}s",
            "silence": f"{LONGEST_SILENCE}s",
        },
    )
    return bool(rows)


def _set_aside(task: Task, begun: Begun) -> None:
    """Set aside what kills workers: one item of the task if it is known, otherwise the whole task."""
    go_on_after = task.set_aside(begun.after)
    what = "it" if go_on_after is None else "what it was about"
    logger.error("%s workers in a row died in the maintenance task %r: %s is set aside", DEATHS, begun.name, what)
    execute(
        """UPDATE workflows_chore SET begun_at = NULL, due_at = clock_timestamp(), deaths = 0,
                  after = coalesce(%(after)s::bigint, after),
                  set_aside_at = CASE WHEN %(after)s::bigint IS NULL THEN clock_timestamp() END
            WHERE name = %(name)s""",
        {"name": begun.name, "after": go_on_after},
    )


def _succeed(name: str, after: int, rest: float) -> None:
    session_of().run(
        """UPDATE workflows_chore SET after = %(after)s, due_at = clock_timestamp() + make_interval(secs => %(rest)s),
                  failing_since = NULL, error = '', begun_at = NULL, deaths = 0
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
                  failing_since = coalesce(failing_since, clock_timestamp()), error = %(error)s,
                  begun_at = NULL, deaths = 0
            WHERE name = %(name)s""",
        {"name": name, "rest": AFTER_FAILURE, "error": why},
    )


def make_due_for_this_release(queue: str) -> None:
    """When a worker starts, make due what waited for a release that knows its type or has a lookup for its call."""
    waited_for = {"a release that knows them": unknown_types.make_due, "a lookup": reconcile.make_answerable_due}
    for what, make_due in waited_for.items():
        if made := make_due(queue):
            logger.info("%s workflows waited for %s, and are due now", made, what)
