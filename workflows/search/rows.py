"""`manage.py searchkeys`: search keys for rows that lack them or have an old one; in slices, beside the intake.

It also writes hashes of business keys, with each workflow's role (`workflows.features.business_key.duplicates`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import OperationalError, transaction

from workflows import charges
from workflows.definition import WorkflowDefinition, definitions
from workflows.postgres import sqlstates
from workflows.postgres.statements import execute, fetch_all, fetch_row
from workflows.search.search_keys import (
    LONGEST_TEXT,
    business_hashes,
    business_key_of,
    hashes_of,
    hashes_to_store,
    keys,
)

# Rows at a time: at most a second of work, and some megabytes.
SLICE = 1000
# Seconds for each statement; a slice that takes longer is halved. No lock taken here makes anybody wait.
STATEMENT_TIMEOUT, LOCK_TIMEOUT = 10, 2
_QUERY_CANCELED = "57014"
# Seconds. The command rests as long as the last slice took, so it uses half of one connection.
LONGEST_REST = 2.0
_INSERT = """
    INSERT INTO workflows_searchkey (hash, workflow_id, key_id)
    SELECT hash, workflow_id, %(key_id)s FROM unnest(%(hashes)s::bytea[], %(ids)s::bigint[]) AS new (hash, workflow_id)
     ORDER BY hash, workflow_id
    ON CONFLICT DO NOTHING
"""

# A workflow keeps its role under another key. A workflow without a role was taken up by a release that did not know the
# business key: it may go on with what it began, and that, like its finished calls, blocks others.
_INSERT_BUSINESS_KEYS = f"""
    INSERT INTO workflows_businesskey (hash, workflow_id, key_id, role)
    SELECT new.hash, w.id, %(key_id)s, coalesce(max(old.role), 'holder')
      FROM unnest(%(hashes)s::bytea[], %(old_hashes)s::bytea[], %(ids)s::bigint[]) AS new (hash, old_hash, workflow_id)
      JOIN workflows_workflow w ON w.id = new.workflow_id
      LEFT JOIN workflows_businesskey old ON old.hash = new.old_hash AND old.workflow_id = w.id
     GROUP BY new.hash, w.id
    HAVING max(old.role) IS NOT NULL OR w.status = 'COMPLETE' OR w.status = 'PENDING' AND w.begun
        OR w.status = 'FAILED' AND {charges.LEFT}
     ORDER BY new.hash, w.id
    ON CONFLICT DO NOTHING
"""  # noqa: S608 (ours)

# Some old hashes stay. We could not make a new one for a workflow of an unknown type, and have not made one for a
# workflow that was stored after we started, by an intake with the old setting. (Workers write business keys' hashes
# under all keys, so these are no such case.) Where `known` is NULL the workflow is gone. Hashes that nothing can make
# again stay, too: that of a legal hold; and that of a standing or recent charge whose payload was deleted
# (`retention.content` leaves no other failed holder).
_REMOVE = """
    WITH slice AS (
        SELECT hash, workflow_id, key_id FROM {table}
         WHERE (hash, workflow_id) > (%(hash)s, %(workflow_id)s) ORDER BY hash, workflow_id LIMIT %(size)s),
    old AS (
        SELECT slice.hash, slice.workflow_id, workflow_type = ANY (%(types)s::text[]) AS known,
               EXISTS (SELECT FROM workflows_hold h
                        WHERE h.hash = slice.hash AND h.until > clock_timestamp()) AS is_held,
               {of_business} AND w.emptied_at IS NOT NULL
                   AND (w.status = 'FAILED' OR w.completed_at > clock_timestamp() - interval '30 days') AS is_charged
          FROM slice LEFT JOIN workflows_workflow w ON w.id = slice.workflow_id
         WHERE key_id <> %(key_id)s),
    gone AS (
        DELETE FROM {table} k USING old
         WHERE k.hash = old.hash AND k.workflow_id = old.workflow_id
           AND (known IS NULL OR known AND old.workflow_id <= %(newest)s AND NOT (is_held OR is_charged))
        RETURNING 1)
    SELECT hash, workflow_id, (SELECT count(*) FROM gone), (SELECT count(*) FROM old WHERE NOT known),
           (SELECT count(*) FROM old WHERE known AND workflow_id > %(newest)s AND NOT {of_business} AND NOT is_held),
           (SELECT count(*) FROM old WHERE known AND is_charged)
      FROM slice ORDER BY hash DESC, workflow_id DESC LIMIT 1
"""
_REMOVALS = (
    _REMOVE.format(table="workflows_searchkey", of_business="false"),
    _REMOVE.format(table="workflows_businesskey", of_business="true"),
)


@dataclass(slots=True)
class Progress:
    """Workflows from the id `below` upwards are done. The counts are of hashes."""

    below: int
    newest: int
    written: int = 0
    removed: int = 0
    of_other_types: int = 0
    too_new: int = 0
    of_charges: int = 0


def begin(below: int | None = None) -> Progress:
    """Start with nothing done, for all present workflows or for those below that id."""
    (newest,) = fetch_row("SELECT coalesce(max(id), 0) FROM workflows_workflow")
    return Progress(newest + 1 if below is None else min(below, newest + 1), newest)


def fill(progress: Progress) -> Iterator[Progress]:
    """Give each workflow the search keys that it lacks, newest first; report progress after each slice.

    It may be stopped, and continues later from `below`. It may run beside the intake, and twice: existing keys stay.
    """
    size = SLICE
    while progress.below > 1:
        began = time.monotonic()
        try:
            last, written = _fill_slice(progress.below, size)
        except OperationalError as error:
            if size == 1 or sqlstates.sqlstate(error) != _QUERY_CANCELED:
                raise
            size = max(1, size // 2)
            continue
        progress.below, size = last, SLICE
        progress.written += written
        yield progress
        time.sleep(min(time.monotonic() - began, LONGEST_REST))


def remove_old(progress: Progress) -> Iterator[Progress]:
    """Remove search keys of other SEARCH_KEYS, after `fill` has given all workflows those of the first."""
    for sql in _REMOVALS:
        yield from _remove_by(sql, progress)


def _remove_by(sql: str, progress: Progress) -> Iterator[Progress]:
    hash_, workflow_id = b"", 0
    while True:
        began = time.monotonic()
        with _limited():
            rows = fetch_all(
                sql,
                {
                    "hash": hash_,
                    "workflow_id": workflow_id,
                    "size": SLICE,
                    "key_id": keys()[0].id,
                    "types": list(definitions()),
                    "newest": progress.newest,
                },
            )
        if not rows:
            return
        hash_, workflow_id, removed, of_other_types, too_new, of_charges = rows[0]
        progress.removed += removed
        progress.of_other_types += of_other_types
        progress.too_new += too_new
        progress.of_charges += of_charges
        yield progress
        time.sleep(min(time.monotonic() - began, LONGEST_REST))


def add(workflow_id: int, definition: WorkflowDefinition, payload: Mapping[str, Any]) -> None:
    """Add the search keys of a corrected payload to the existing ones, in the caller's transaction.

    The old ones stay, and so does the hash of the business key: the workflow is also found, held and compared as it was
    first sent.
    """
    _insert(_INSERT, [(each, workflow_id) for each in hashes_of(definition, payload)], "hashes", "ids")


def _fill_slice(below: int, size: int) -> tuple[int, int]:
    """Write the keys of up to `size` workflows below an id; return the last one's id, and how many keys were new."""
    known = definitions()
    fields = list(dict.fromkeys(field for definition in known.values() for field in _fields_of(definition)))
    paths = [each.split(".") for each in fields for _ in range(4)]
    with _limited():
        rows = fetch_all(_select(len(fields), _NEWEST), [*paths, below, size])
        keyed: list[tuple[bytes, int]] = []
        business: list[tuple[bytes, bytes | None, int]] = []
        as_first_sent = fetch_all(_select(len(fields), _AS_FIRST_SENT), [*paths, [pk for pk, *_ in rows]])
        for pk, workflow_type, tenant, *texts in [*rows, *as_first_sent]:
            if definition := known.get(workflow_type):
                found = {field: text and json.loads(text) for field, text in zip(fields, texts, strict=True)}
                values = {kind: found[key.field] for kind, key in definition.search_keys.items()}
                keyed += [(each, pk) for each in hashes_to_store(definition.search_keys, values)]
                if business_key := business_key_of(definition, tenant, found):
                    (new, _), *others = business_hashes(business_key)
                    business += [(new, old, pk) for old, _ in others] or [(new, None, pk)]
        written = _insert(_INSERT, keyed, "hashes", "ids")
        written += _insert(_INSERT_BUSINESS_KEYS, business, "hashes", "old_hashes", "ids")
    return (rows[-1][0] if len(rows) == size else 1), written


def _fields_of(definition: WorkflowDefinition) -> list[str]:
    return [*(key.field for key in definition.search_keys.values()), *definition.business_key]


def _insert(sql: str, rows: Sequence[tuple[Any, ...]], *columns: str) -> int:
    if not rows:
        return 0
    given = dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))
    return execute(sql, {"key_id": keys()[0].id, **charges.parameters(), **given})


_NEWEST = "workflows_workflow WHERE id < %s ORDER BY id DESC LIMIT %s"
# A corrected payload is also found and compared as it was first sent.
_AS_FIRST_SENT = """(SELECT w.id, w.workflow_type, w.tenant, o.payload
      FROM workflows_originalpayload o JOIN workflows_workflow w ON w.id = o.workflow_id WHERE w.id = ANY (%s)) sent"""


def _select(fields: int, rows: str) -> str:
    """Select only the fields, as JSON, cut beyond the usable length, because a payload may have 256 KB."""
    value, text = "payload #> %s::text[]", f"to_jsonb(left(payload #>> %s::text[], {LONGEST_TEXT + 1}))"
    one = f"WHEN 'string' THEN {text} WHEN 'number' THEN {value} WHEN 'boolean' THEN {value}"
    field = f"(CASE jsonb_typeof({value}) {one} END)::text"
    columns = ", ".join(["id", "workflow_type", "tenant", *[field] * fields])
    return f"SELECT {columns} FROM {rows}"  # noqa: S608 (ours)


@contextmanager
def _limited() -> Iterator[None]:
    """A transaction of short statements that never wait long for others."""
    with transaction.atomic():
        sql = "SELECT set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)"
        fetch_all(sql, (f"{STATEMENT_TIMEOUT}s", f"{LOCK_TIMEOUT}s"))
        yield
