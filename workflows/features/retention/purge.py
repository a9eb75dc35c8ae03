"""PURGE: workflows that finished long ago are emptied, and later deleted. Done by maintenance and `manage.py purge`.

It goes slice by slice, oldest first, each in its own transaction: a crash leaves each workflow whole, emptied or
deleted. A slice locks rows that are free. Then a new statement checks whether anything of them is unsettled.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db import transaction

from workflows.definition import definitions
from workflows.features.retention import rows
from workflows.features.retention.content import empty
from workflows.features.retention.holds import let_holds_wait
from workflows.features.retention.unsettled import settled
from workflows.models.clock import microseconds, moment
from workflows.postgres.statements import fetch_all
from workflows.signals.waking import Slice

# Rows of a slice: some 50 ms.
SLICE = 100
# The rest after a slice, as a multiple of its duration: a worker retains nine tenths of its speed.
REST = 25

_START = datetime(1970, 1, 1, tzinfo=UTC)

# Each type uses its own range of an index. Types that this release does not know are left alone.
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
    """How many workflows were, or would be, emptied and deleted, by type; and how many old ones stay, by reason."""

    emptied: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    stay: Counter[str] = field(default_factory=Counter)
    since: datetime = _START


# Old workflows in order: id, type and end.
Old = list[tuple[int, str, datetime]]
# Empties or deletes a slice, or counts it in a dry run.
SliceOf = Callable[[Progress, bool], Old]


def _old(since: datetime, *, emptied: bool) -> Old:
    """The oldest workflows, from a time on, that are to be emptied, or if they are `emptied`, to be deleted."""
    ages = {name: definition.retention for name, definition in definitions().items()}
    kept = [each.rows if emptied else each.content for each in ages.values()]
    parameters = {"types": list(ages), "kept": kept, "since": since, "size": SLICE}
    rows = fetch_all(_OLD.format(emptied="NOT NULL" if emptied else "NULL"), parameters)
    return [(pk, name, at) for pk, name, at in rows]


def empty_old(after: int = 0) -> Slice:
    """Maintenance: empty a slice. `after` is a time in microseconds: what finished before it is dealt with."""
    return _slice(_empty_slice, after)


def delete_old(after: int = 0) -> Slice:
    """Maintenance: delete the rows of a slice of emptied workflows. `after` as above."""
    return _slice(_delete_slice, after)


def _slice(do: SliceOf, after: int) -> Slice:
    began, progress = time.monotonic(), Progress(since=moment(after))
    found = do(progress, False)
    changed = (progress.emptied + progress.deleted).total()
    return Slice(changed, _next(found, changed), REST * (time.monotonic() - began))


def _next(found: Old, changed: int) -> int:
    """Where the next slice begins: 0, the start, after the last one."""
    if len(found) < SLICE:
        return 0
    # If the whole slice stayed, skip its last moment: many may have finished then.
    return microseconds(found[-1][2]) + (0 if changed else 1)


def purge(progress: Progress, *, dry_run: bool) -> Iterator[Progress]:
    """Empty and delete all that may go, or count it; yield the progress after each slice. It can be run again."""
    for slice_of in (_empty_slice, _delete_slice):
        progress.since = _START
        while True:
            began = time.monotonic()
            with transaction.atomic():
                found = slice_of(progress, dry_run)
            yield progress
            if len(found) < SLICE:
                break
            progress.since = found[-1][2] + timedelta(microseconds=1)
            time.sleep(time.monotonic() - began)


def _empty_slice(progress: Progress, dry_run: bool) -> Old:
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


def _delete_slice(progress: Progress, dry_run: bool) -> Old:
    found = _old(progress.since, emptied=True)
    ids = [pk for pk, *_ in found]
    gone = [pk for pk, _ in rows.may_go(ids, lock=False)] if dry_run else rows.delete(ids)
    progress.deleted.update(name for pk, name, _ in found if pk in gone)
    return found
