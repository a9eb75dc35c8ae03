"""Whether a workflow has taken money: the words of its definition say which step charges."""

from __future__ import annotations

from workflows.definition import definitions
from workflows.postgres.statements import fetch_one

# What is cancelled with the workflow counts: its children that are still under way, and theirs. Of a type that this
# release does not know every call that stands may be a charge.
_CHARGED = """
WITH RECURSIVE family AS (
    SELECT id, workflow_type FROM workflows_workflow WHERE id = %(workflow_id)s
     UNION ALL
    SELECT child.id, child.workflow_type
      FROM family JOIN workflows_workflow child ON child.parent_id = family.id AND child.status = 'PENDING')
SELECT EXISTS (
    SELECT FROM family
      JOIN workflows_effect e ON e.workflow_id = family.id AND NOT e.undo
      LEFT JOIN unnest(%(types)s::text[], %(steps)s::text[], %(references)s::text[]) AS charge (type, step, reference)
        ON charge.type = family.workflow_type AND charge.step = e.step
     WHERE e.state IN ('intent', 'unknown')
           AND (charge.step IS NOT NULL OR family.workflow_type <> ALL (%(known)s::text[]))
        OR e.state IN ('done', 'kept')
           AND (e.result ->> charge.reference <> '' OR family.workflow_type <> ALL (%(known)s::text[])))
"""


def may_have_been_charged(workflow_id: int) -> bool:
    """Whether a charge of the workflow, or of a child that would be cancelled with it, stands or is unclear.

    Not one that was refunded, and not a call that charged nothing.
    """
    charges = [
        (definition.name, step, money.reference)
        for definition in definitions().values()
        if (money := definition.wording.money)
        for step in definition.find_or_removed_step(money.step).names
    ]
    types, steps, references = map(list, zip(*charges, strict=True)) if charges else ([], [], [])
    found = fetch_one(
        _CHARGED,
        {
            "workflow_id": workflow_id,
            "types": types,
            "steps": steps,
            "references": references,
            "known": list(definitions()),
        },
    )
    return bool(found and found[0])
