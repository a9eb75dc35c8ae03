"""ROWS: what was emptied long ago is deleted, with all that belongs to it; of each workflow its keys stay.

In two steps, an hour or more apart: the keys are set aside (`SpentKey`), and that is committed; then the rows go. A
submission that is being stored looks for a spent key first, and then meets the unique key of the row. If both changed
at once, one that had looked before, and stored after, would start a second time what was charged already.
"""

from __future__ import annotations

from collections.abc import Sequence

from workflows import charges
from workflows.extension import installed
from workflows.postgres.statements import execute, fetch_all

# One that has children with content stays: somebody may still retry these. A child that is emptied has a parent that is
# emptied, too, and never starts it again. What failed and stands keeps its ledger.
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

# What belongs to a workflow, and is there once it is emptied; each has an index that begins with the workflow. What
# people did is the audit, as what they looked at is, and stays for longer (`retention.ages`).
_OURS = [
    "workflows_attempt WHERE workflow_id",
    "workflows_event WHERE actor = '' AND workflow_id",
    "workflows_effect WHERE workflow_id",
    "workflows_wait WHERE workflow_id",
    "workflows_manualtask WHERE workflow_id",
]


def may_go(ids: Sequence[int], *, lock: bool) -> list[tuple[int, bool]]:
    """Those of these emptied workflows that may be deleted: id, and whether that can be now, or in an hour."""
    sql = f"{_MAY} FOR UPDATE OF w SKIP LOCKED" if lock else _MAY
    return [(pk, bool(now)) for pk, now in fetch_all(sql, {"ids": list(ids), **charges.parameters()})]


def delete(ids: Sequence[int]) -> list[int]:
    """Delete those of these emptied workflows that may go now; set the others' keys aside. It needs a transaction."""
    found = may_go(ids, lock=True)
    execute(_SET_ASIDE, [[pk for pk, now in found if not now]])
    if gone := [pk for pk, now in found if now]:
        of_features = (table for each in installed() for table in each.belongs)
        # The row itself goes last: the triggers look at it.
        for table in (*_OURS, *of_features, "workflows_workflow WHERE id"):
            execute(f"DELETE FROM {table} = ANY (%s)", [gone])  # noqa: S608 (ours)
    return gone
