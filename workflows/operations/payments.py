"""Whether a workflow has taken money, or would take it again: its definition's words say which step charges."""

from __future__ import annotations

from workflows.definition import definitions
from workflows.postgres.statements import fetch_one

# A call that has charged something. Any call may have, if this release does not know the type.
_HAS_CHARGED = "(e.result ->> charge.reference <> '' OR family.workflow_type <> ALL (%(known)s::text[]))"
_MAY_HAVE_CHARGED = "(charge.step IS NOT NULL OR family.workflow_type <> ALL (%(known)s::text[]))"


def _exists_call(*, child: str, call: str) -> str:
    """SQL for whether a workflow, or a descendant to which the same happens, has made such a call."""
    return f"""
        WITH RECURSIVE family AS (
            SELECT id, workflow_type, cancelled_at FROM workflows_workflow WHERE id = %(workflow_id)s
             UNION ALL
            SELECT child.id, child.workflow_type, child.cancelled_at
              FROM family JOIN workflows_workflow child ON child.parent_id = family.id AND {child})
        SELECT EXISTS (
            SELECT FROM family
              JOIN workflows_effect e ON e.workflow_id = family.id AND NOT e.undo
              LEFT JOIN unnest(%(types)s::text[], %(steps)s::text[], %(references)s::text[])
                        AS charge (type, step, reference)
                ON charge.type = family.workflow_type AND charge.step = e.step
             WHERE {call})"""  # noqa: S608 (ours)


# What is cancelled with the workflow counts.
_CHARGED = _exists_call(
    child="child.status = 'PENDING'",
    call=f"e.state IN ('intent', 'unknown') AND {_MAY_HAVE_CHARGED} OR e.state IN ('done', 'kept') AND {_HAS_CHARGED}",
)

# Children that were cancelled with it are retried with it. What was charged again since, and stands, is on record, and
# is not charged once more.
_REFUNDED = _exists_call(
    child="family.cancelled_at IS NOT NULL AND child.cancelled_at IS NOT NULL",
    call=f"""e.state = 'undone' AND {_HAS_CHARGED}
             AND NOT EXISTS (SELECT FROM workflows_effect later
                              WHERE later.workflow_id = e.workflow_id AND later.step = e.step AND NOT later.undo
                                AND later.generation > e.generation AND later.state IN ('done', 'kept'))""",
)


def may_have_been_charged(workflow_id: int) -> bool:
    """Whether a charge of it, or of a child cancelled with it, stands or is unclear; a refunded one does not count."""
    return _exists(_CHARGED, workflow_id)


def would_charge_again(workflow_id: int) -> bool:
    """Whether a retry of the workflow, or of a child that is retried with it, charges again what was refunded."""
    return _exists(_REFUNDED, workflow_id)


def _exists(sql: str, workflow_id: int) -> bool:
    charges = [
        (definition.name, step, money.reference)
        for definition in definitions().values()
        if (money := definition.wording.money)
        for step in definition.charge_names
    ]
    types, steps, references = map(list, zip(*charges, strict=True)) if charges else ([], [], [])
    found = fetch_one(
        sql,
        {
            "workflow_id": workflow_id,
            "types": types,
            "steps": steps,
            "references": references,
            "known": list(definitions()),
        },
    )
    return bool(found and found[0])
