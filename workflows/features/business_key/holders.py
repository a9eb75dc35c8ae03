"""HOLDERS of a business key: workflows that may run, or have run, under it. Others wait for a holder's end.

A worker writes each workflow's role (`BusinessKeyHash.Role`), under an advisory lock on the key
(`business_key.duplicates`, docs/adr/0020).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from workflows import charges
from workflows.definition import WorkflowDefinition, definitions, value_at
from workflows.models import BusinessKeyHash, Workflow
from workflows.postgres.round_trips import session_of
from workflows.postgres.statements import Parameters, execute
from workflows.postgres.wire import Row
from workflows.search import search_keys
from workflows.signals.waking import Slice, slice_of
from workflows.state.transitions import make_due_where

HOLDER, WAITING, FORMER = BusinessKeyHash.Role.HOLDER, BusinessKeyHash.Role.WAITING, BusinessKeyHash.Role.FORMER

# This name in `wake_on` marks a workflow that waits for the holder. No signal has it.
HOLDER_ENDED = "holder:ended"

# A holder counts if it is under way; if it is COMPLETE, and the other workflow was accepted at most `within` after
# that; or if it failed and left a call. The last also counts if it was replaced, or was a duplicate itself. The last
# column says when a waiting workflow that nobody wakes looks again.
_HOLDERS = f"""
    SELECT w.id, w.status,
           CASE w.status WHEN 'PENDING' THEN true
                         WHEN 'COMPLETE' THEN %(created_at)s <= w.completed_at + %(within)s::interval
                         ELSE {charges.LEFT} END,
           w.payload::text, clock_timestamp() + interval '1 hour'
      FROM workflows_workflow w
     WHERE w.id IN (
           SELECT workflow_id FROM workflows_businesskey WHERE hash = ANY (%(hashes)s::bytea[]) AND role = 'holder'
            UNION ALL
           SELECT w.id FROM workflows_businesskey k JOIN workflows_workflow w ON w.id = k.workflow_id
            WHERE k.hash = ANY (%(hashes)s::bytea[]) AND k.role = 'former' AND w.id <> %(workflow_id)s
              AND {charges.LEFT})
     ORDER BY w.id"""  # noqa: S608 (ours)
_WRITE = """
    WITH written AS (
        INSERT INTO workflows_businesskey (hash, workflow_id, key_id, role)
        SELECT hash, %(workflow_id)s, key_id, %(role)s
          FROM unnest(%(hashes)s::bytea[], %(key_ids)s::int[]) AS own (hash, key_id) WHERE {allowed}
        ON CONFLICT (hash, workflow_id) DO UPDATE SET role = excluded.role
        RETURNING workflow_id),
    replaced AS (
        UPDATE workflows_businesskey SET role = 'former'
         WHERE hash = ANY (%(hashes)s::bytea[]) AND workflow_id = ANY (%(replaced)s::bigint[]))
    SELECT FROM written"""


class Holder(NamedTuple):
    """A workflow that may run, or has run, under a business key. `counts`: it can be in another one's way."""

    workflow_id: int
    status: str
    counts: bool
    payload: dict[str, Any]
    look_again_at: datetime


def hashes_in(
    definition: WorkflowDefinition | None, tenant: str, payload: Mapping[str, Any]
) -> list[tuple[bytes, int]]:
    """The hashes of a payload's business key, one for each secret, with the secret's id. Empty if it has no key.

    A worker writes all of them: otherwise two workers with different settings would both run.
    """
    if definition is None or not definition.business_key:
        return []
    values = {field: value_at(payload, field) for field in definition.business_key}
    business_key = search_keys.business_key_of(definition, tenant, values)
    return sorted(search_keys.business_hashes(business_key)) if business_key else []


def hashes_of(workflow: Workflow) -> list[tuple[bytes, int]]:
    """The hashes of a workflow's business key, as `hashes_in` returns them."""
    return hashes_in(definitions().get(workflow.workflow_type), workflow.tenant, workflow.payload)


Run = Callable[[str, Parameters], list[Row]]


def read(
    run: Run, definition: WorkflowDefinition, workflow: Workflow, hashes: Sequence[tuple[bytes, int]]
) -> list[Holder]:
    """The holders of a business key as `workflow` sees them, oldest first. It may be among them itself."""
    parameters = {
        "hashes": [each for each, _ in hashes],
        "workflow_id": workflow.pk,
        **charges.parameters(definition),
        "created_at": workflow.created_at,
        "within": definition.within,
    }
    found = run(_HOLDERS, parameters)
    return [Holder(pk, status, counts, json.loads(text), at) for pk, status, counts, text, at in found]


def lock(run: Run, hashes: Sequence[tuple[bytes, int]]) -> None:
    """Lock the business key until the transaction ends. Locks the hashes in one order, to avoid deadlocks."""
    keys = [int.from_bytes(each[:8], signed=True) for each, _ in hashes]
    run("SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)s::bigint[]) AS key", {"keys": keys})


def write(
    run: Run,
    hashes: Sequence[tuple[bytes, int]],
    workflow: Workflow,
    role: str,
    replaced: Sequence[int] = (),
    *,
    allowed: str = "true",
    **more: Any,
) -> bool:
    """Write the workflow's role, and make the `replaced` ones former holders. False if it is not `allowed`."""
    own, key_ids = map(list, zip(*hashes, strict=True))
    parameters = {"workflow_id": workflow.pk, "hashes": own, "key_ids": key_ids, "role": str(role)}
    return bool(run(_WRITE.format(allowed=allowed), {**parameters, "replaced": list(replaced), **more}))


_FORGET = f"""
    DELETE FROM workflows_businesskey k
     USING unnest(%(hashes)s::bytea[], %(of)s::bigint[], %(within)s::interval[]) AS own (hash, id, within)
      JOIN workflows_workflow w ON w.id = own.id
     WHERE k.hash = own.hash AND k.workflow_id = own.id
       AND CASE w.status WHEN 'COMPLETE' THEN w.completed_at + own.within < clock_timestamp()
                         ELSE NOT {charges.LEFT} END"""  # noqa: S608 (ours)


def forget(hashes: Sequence[tuple[bytes, int, timedelta]]) -> None:
    """Delete hashes of emptied workflows, each with its definition's `within`, unless they still decide something: a
    failure left a charge, or a later submission may be a duplicate of a COMPLETE workflow.
    """
    if hashes:
        own = dict(zip(("hashes", "of", "within"), map(list, zip(*hashes, strict=True)), strict=True))
        execute(_FORGET, {**own, **charges.parameters()})


# --- Woken by the holder's end ------------------------------------------------------------------------

# The workflow `w` waits for a holder, and no holder is under way any more.
_FREE = f"""
    '{HOLDER_ENDED}' = ANY (w.wake_on) AND NOT EXISTS (
        SELECT FROM workflows_businesskey own
          JOIN workflows_businesskey k ON k.hash = own.hash AND k.role = 'holder'
          JOIN workflows_workflow holder ON holder.id = k.workflow_id AND holder.status = 'PENDING'
         WHERE own.workflow_id = w.id AND own.role = 'waiting')"""
# It is also the oldest of those that wait. If the holder failed, the others would only find that this one runs now.
_FIRST_IN_LINE = f"""
    {_FREE} AND NOT EXISTS (
        SELECT FROM workflows_businesskey own
          JOIN workflows_businesskey k ON k.hash = own.hash AND k.role = 'waiting' AND k.workflow_id < own.workflow_id
          JOIN workflows_workflow earlier ON earlier.id = k.workflow_id AND earlier.status = 'PENDING'
         WHERE own.workflow_id = w.id AND own.role = 'waiting')"""

_BEHIND = "SELECT workflow_id FROM workflows_businesskey WHERE hash = ANY (%(hashes)s::bytea[]) AND role = 'waiting'"


def wake_those_behind(workflow: Workflow, *, is_complete: bool) -> None:
    """Wake the workflows that waited for this one, except those with a locked row. Runs after the commit.

    If it is COMPLETE, wakes all: each is a duplicate, or needs a person. Else wakes the oldest, which replaces it.
    """
    hashes = [each for each, _ in hashes_of(workflow)]
    behind = [pk for (pk,) in session_of().run(_BEHIND, {"hashes": hashes})]
    if behind:  # rarely: planning the next statement takes longer than this check
        make_due_where(f"w.id = ANY (%s) AND {_FREE if is_complete else _FIRST_IN_LINE}", [behind])


def wake_waiting(after: int = 0) -> Slice:
    """Maintenance: behind each holder that has ended, wake the oldest waiting workflow. Starts after that id."""
    waiting = "SELECT workflow_id AS id FROM workflows_businesskey WHERE role = 'waiting' AND workflow_id > {}"
    last, next_after = slice_of(f"{waiting.format('%s')} ORDER BY workflow_id", after)
    if not last:
        return Slice(0)
    in_slice = f"{waiting.format('%(after)s')} AND workflow_id <= %(last)s"
    woken = make_due_where(f"w.id IN ({in_slice}) AND {_FIRST_IN_LINE}", {"after": after, "last": last})
    return Slice(woken, next_after)
