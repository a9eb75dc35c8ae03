"""ROWS: workflows that were emptied long ago are deleted with all that belongs to them. Only their keys stay.

This takes two steps, at least an hour apart: the keys are stored as a `SpentKey` and committed; later the rows are
deleted. The intake looks for a spent key first, and then meets the unique key of the row. If both changed at once, a
submission that looked before and stored after would start, and charge, a second time.
"""

from __future__ import annotations

from collections.abc import Sequence

from workflows import charges
from workflows.extension import installed
from workflows.postgres.statements import execute, fetch_all

# A workflow whose children have content stays, because people may retry these. A child is emptied only with or after
# its parent, which never starts it again. A failure with a charge that stands keeps its ledger.
_MAY = f"""
    SELECT w.id, spent.at < now() - interval '1 hour'
      FROM workflows_workflow w LEFT JOIN workflows_spentkey spent ON spent.workflow_id = w.id
     WHERE w.id = ANY (%(ids)s) AND NOT (w.status = 'FAILED' AND {charges.LEFT})
       AND NOT EXISTS (SELECT FROM workflows_workflow child
                        WHERE child.parent_id = w.id AND child.emptied_at IS NULL)
     ORDER BY w.id"""  # noqa: S608 (ours)
_SET_ASIDE = """
    INSERT INTO workflows_spentkey
           (workflow_id, idempotency_key, business_key, workflow_type, tenant, submitted_by, status, state)
    SELECT id, idempotency_key, business_key, workflow_type, tenant, submitted_by, status,
           CASE WHEN cancelled_at IS NULL THEN lower(status) ELSE 'cancelled' END
      FROM workflows_workflow WHERE id = ANY (%s)
        ON CONFLICT DO NOTHING"""

# What belongs to an emptied workflow. Each table has an index that begins with the workflow. Events of people are part
# of the audit, and stay for longer (`retention.ages`).
_OURS = [
    "workflows_attempt WHERE workflow_id",
    "workflows_event WHERE actor = '' AND workflow_id",
    "workflows_effect WHERE workflow_id",
    "workflows_wait WHERE workflow_id",
    "workflows_manualtask WHERE workflow_id",
]


def may_go(ids: Sequence[int], *, lock: bool) -> list[tuple[int, bool]]:
    """The emptied workflows that may be deleted: id, and whether that is possible now (else in an hour)."""
    sql = f"{_MAY} FOR UPDATE OF w SKIP LOCKED" if lock else _MAY
    return [(pk, bool(now)) for pk, now in fetch_all(sql, {"ids": list(ids), **charges.parameters()})]


def delete(ids: Sequence[int]) -> list[int]:
    """Delete the emptied workflows that may go now, and store the spent keys of the others. Needs a transaction."""
    found = may_go(ids, lock=True)
    execute(_SET_ASIDE, [[pk for pk, now in found if not now]])
    if gone := [pk for pk, now in found if now]:
        of_features = (table for each in installed() for table in each.belongs)
        # The workflow's row goes last, because the triggers read it.
        for table in (*_OURS, *of_features, "workflows_workflow WHERE id"):
            execute(f"DELETE FROM {table} = ANY (%s)", [gone])  # noqa: S608 (ours)
    return gone
