"""PURGE: what has finished long ago is emptied, and later deleted; maintenance tasks, and `manage.py purge`.

The oldest first, slice by slice, each in a transaction of its own: whatever dies, each workflow is emptied, or deleted,
as a whole or not at all. A slice takes rows that nobody holds, and then looks, by a new statement, whether anything of
them is unsettled.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from django.db import transaction

from workflows.definition import definitions
from workflows.engine.maintenance import Task
from workflows.models.clock import microseconds, moment
from workflows.postgres.statements import fetch_all
from workflows.retention import rows
from workflows.retention.content import empty
from workflows.retention.holds import let_holds_wait
from workflows.retention.unsettled import settled
from workflows.signals.waking import Slice

logger = logging.getLogger(__name__)

# Rows at a time: some 50 ms.
SLICE = 100
# A slice rests so many times as long as it took: a worker that empties and deletes keeps nine tenths of its speed.
REST = 25

_START = datetime(1970, 1, 1, tzinfo=UTC)

# Each type by its own range of an index; a type that this release does not know stays.
_OLD = """
    SELECT id, workflow_type, completed_at
      FROM unnest(%(types)s::text[], %(kept)s::interval[]) AS known (type, kept)
     CROSS JOIN LATERAL (
           SELECT id, workflow_type, completed_at FROM workflows_workflow
            WHERE workflow_type = known.type AND emptied_at IS {emptied} AND completed_at IS NOT NULL
              AND completed_at >= %(since)s AND completed_at < now() - known.kept
            ORDER BY completed_at LIMIT %(size)s) AS old
     ORDER BY completed_at LIMIT %(size)s"""
_LOCK = """
    SELECT id FROM workflows_workflow
     WHERE id = ANY (%s) AND emptied_at IS NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"""


@dataclass(slots=True)
class Progress:
    """How many were emptied and deleted, or would be, by type; and why others stay, whatever their age.

    `failed`: the types of which no more is deleted, each with the class of what their archive has raised.
    """

    emptied: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    stay: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    since: datetime = _START


# What is old, in order: its number, type and end.
Old = list[tuple[int, str, datetime]]
# Empties or deletes a slice of it, or counts what would be, in a dry run; the type that it is only of.
SliceOf = Callable[[Progress, bool, str], Old]


def _archives() -> dict[str, str]:
    return {name: archive for name, each in definitions().items() if (archive := each.retention.archive)}


def _old(since: datetime, *, emptied: bool, only: str = "") -> Old:
    """The oldest, from a time on, of what is to be emptied; or, once it is `emptied`, to be deleted.

    What is deleted is of `only` one type, or of those without an archive: one that fails stops no other type.
    """
    ages = {
        name: definition.retention
        for name, definition in definitions().items()
        if not emptied or (name == only if only else not definition.retention.archive)
    }
    kept = [each.rows if emptied else each.content for each in ages.values()]
    parameters = {"types": list(ages), "kept": kept, "since": since, "size": SLICE}
    rows = fetch_all(_OLD.format(emptied="NOT NULL" if emptied else "NULL"), parameters)
    return [(pk, name, at) for pk, name, at in rows]


def empty_old(after: int = 0) -> Slice:
    """The maintenance task. `after` is a time in microseconds: of what had finished by then all has gone that may."""
    return _slice(_empty_slice, after)


def delete_old(after: int = 0, *, only: str = "") -> Slice:
    """The same for the rows of what is emptied."""
    return _slice(_delete_slice, after, only)


def _slice(do: SliceOf, after: int, only: str = "") -> Slice:
    began, progress = time.monotonic(), Progress(since=moment(after))
    found = do(progress, False, only)
    changed = (progress.emptied + progress.deleted).total()
    return Slice(changed, _next(found, changed), REST * (time.monotonic() - began))


def _next(found: Old, changed: int) -> int:
    """Where the next slice begins: at 0, the start, when there are no more."""
    if len(found) < SLICE:
        return 0
    # Of many that finished at one moment the first ones may all stay.
    return microseconds(found[-1][2]) + (0 if changed else 1)


def purge(progress: Progress, *, dry_run: bool) -> Iterator[Progress]:
    """Empty and delete all that may go, or count it; report progress after each slice. Stopped, it may start again."""
    of_archives = [(_delete_slice, name) for name in _archives()]
    for slice_of, only in ((_empty_slice, ""), (_delete_slice, ""), *of_archives):
        progress.since = _START
        while True:
            began = time.monotonic()
            try:
                with transaction.atomic():
                    found = slice_of(progress, dry_run, only)
            except Exception as error:
                if not only:
                    raise
                logger.exception("nothing more of %s is deleted: its archive has failed", only)
                progress.failed[only] = type(error).__name__
                break
            yield progress
            if len(found) < SLICE:
                break
            progress.since = found[-1][2] + timedelta(microseconds=1)
            time.sleep(time.monotonic() - began)


def _empty_slice(progress: Progress, dry_run: bool, only: str) -> Old:
    found = _old(progress.since, emptied=False)
    ids = [pk for pk, *_ in found]
    if ids and not dry_run:
        let_holds_wait()
        ids = [pk for (pk,) in fetch_all(_LOCK, [ids])]
    go, stay = settled(ids)
    if go and not dry_run:
        empty(go)
    progress.emptied.update(name for pk, name, _ in found if pk in go)
    progress.stay.update(stay.values())
    return found


def _delete_slice(progress: Progress, dry_run: bool, only: str) -> Old:
    found = _old(progress.since, emptied=True, only=only)
    ids = [pk for pk, *_ in found]
    gone = [pk for pk, _ in rows.may_go(ids, lock=False)] if dry_run else rows.delete(ids, _archives().get(only, ""))
    progress.deleted.update(name for pk, name, _ in found if pk in gone)
    return found


# For `engine.maintenance`, which knows nothing of what is kept how long.
CHORES = {"empty old": Task(empty_old, every=60.0), "delete old": Task(delete_old, every=60.0)}


def of_archives() -> dict[str, Task]:
    """A task for each type that has an archive."""
    return {f"delete old {name}": Task(partial(delete_old, only=name), every=60.0) for name in _archives()}
