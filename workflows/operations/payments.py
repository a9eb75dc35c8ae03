"""Whether a workflow has taken money, or would take it again: its definition's words say which step charges."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from workflows.definition import definitions, wording_of_type
from workflows.effects import DONE, IN_DOUBT
from workflows.models import Effect, Workflow
from workflows.models.workflow import UNACKNOWLEDGED_SQL
from workflows.operations.amounts import amount
from workflows.postgres.jsonb import SEALED
from workflows.postgres.statements import fetch_all


class Charges(NamedTuple):
    """The calls of one workflow that charge, by their ids: those that stand, and those that may have happened."""

    standing: list[int]
    unclear: list[int]


def charges_of(workflow: Workflow) -> Charges:
    """The workflow's charges as they are now; none if its type is not known here, or has no words for money."""
    definition = definitions().get(workflow.workflow_type)
    money = definition.wording.money if definition else None
    if definition is None or money is None:
        return Charges([], [])
    stands = (DONE, Effect.State.KEPT)
    calls = Effect.objects.filter(workflow=workflow.pk, undo=False, step__in=definition.charge_names).order_by("pk")
    return Charges(
        [call.pk for call in calls if call.state in stands and (call.result or {}).get(money.reference)],
        [call.pk for call in calls if call.state in IN_DOUBT],
    )


def in_words(workflow: Workflow, charges: Charges) -> str:
    """What a workflow's charges come to."""
    money = wording_of_type(workflow.workflow_type).money
    if not (charges.standing or charges.unclear) or money is None:
        return "nothing is charged any more"
    has_been = "has been" if charges.standing else "may have been"
    return f"{amount(workflow.payload, money)} {has_been} charged"


# What its definition says of the call `e` of the workflow `family`: the step of a charge, and what names it.
_CHARGE = """LEFT JOIN unnest(%(types)s::text[], %(steps)s::text[], %(references)s::text[])
                        AS charge (type, step, reference)
                ON charge.type = family.workflow_type AND charge.step = e.step"""
# A call that has charged something. Any call may have, if this release does not know the type; or if a result was
# sealed when its definition said nothing of money, or named the reference otherwise: it does not stand in clear.
_HAS_CHARGED = f"""(e.result ->> charge.reference <> '' OR e.result ? '{SEALED}' AND NOT e.result ? charge.reference
                    OR family.workflow_type <> ALL (%(known)s::text[]))"""
_MAY_HAVE_CHARGED = "(charge.step IS NOT NULL OR family.workflow_type <> ALL (%(known)s::text[]))"
# The charge stands, or is unclear.
_STANDS = f"e.state IN ('intent', 'unknown') AND {_MAY_HAVE_CHARGED} OR e.state IN ('done', 'kept') AND {_HAS_CHARGED}"


def _with_call(*, child: str, call: str) -> str:
    """SQL for which workflows have made such a call; or a descendant has, to which the same happens."""
    # LATERAL: joined to the whole ledger, a planner without statistics might read all of it.
    return f"""
        WITH RECURSIVE family AS (
            SELECT id AS root, id, workflow_type, cancelled_at
              FROM workflows_workflow WHERE id = ANY (%(workflow_ids)s)
             UNION ALL
            SELECT root, child.id, child.workflow_type, child.cancelled_at
              FROM family JOIN workflows_workflow child ON child.parent_id = family.id AND {child})
        SELECT DISTINCT root FROM family
         CROSS JOIN LATERAL (
               SELECT FROM workflows_effect e {_CHARGE}
                WHERE e.workflow_id = family.id AND NOT e.undo AND ({call}) LIMIT 1) charged"""  # noqa: S608 (ours)


# What is cancelled with the workflow counts.
_CHARGED = _with_call(child="child.status = 'PENDING'", call=_STANDS)

# Children that were cancelled with it are retried with it. What was charged again since, and stands, is on record, and
# is not charged once more.
_REFUNDED = _with_call(
    child="family.cancelled_at IS NOT NULL AND child.cancelled_at IS NOT NULL",
    call=f"""e.state = 'undone' AND {_HAS_CHARGED}
             AND NOT EXISTS (SELECT FROM workflows_effect later
                              WHERE later.workflow_id = e.workflow_id AND later.step = e.step AND NOT later.undo
                                AND later.generation > e.generation AND later.state IN ('done', 'kept'))""",
)


def may_have_been_charged(*workflow_ids: int) -> set[int]:
    """Those of which a charge stands or is unclear, their own or of a child cancelled with them; not a refunded one."""
    return _which(_CHARGED, workflow_ids)


def would_charge_again(*workflow_ids: int) -> set[int]:
    """Those whose retry charges again what was refunded, their own or of a child that is retried with them."""
    return _which(_REFUNDED, workflow_ids)


def _which(sql: str, workflow_ids: Sequence[int]) -> set[int]:
    rows = fetch_all(sql, {"workflow_ids": list(workflow_ids), **_charging_steps()})
    return {workflow_id for (workflow_id,) in rows}


def _charging_steps() -> dict[str, Any]:
    """The parameters that say which steps charge, and which types this release knows."""
    charges = [
        (definition.name, step, money.reference)
        for definition in definitions().values()
        if (money := definition.wording.money)
        for step in definition.charge_names
    ]
    types, steps, references = map(list, zip(*charges, strict=True)) if charges else ([], [], [])
    return {"types": types, "steps": steps, "references": references, "known": list(definitions())}


def failed_with_a_charge(newest: int) -> int:
    """How many of the newest failed workflows that nobody has acknowledged have a charge that stands, or is unclear."""
    return len(_charged(_NEWEST_FAILURES, newest=newest))


def charged_among(ids: Collection[int]) -> set[int]:
    """Those of these workflows whose charge stands, or is unclear."""
    return _charged("SELECT id, workflow_type FROM workflows_workflow WHERE id = ANY (%(ids)s)", ids=list(ids))


_NEWEST_FAILURES = f"""SELECT id, workflow_type FROM workflows_workflow WHERE {UNACKNOWLEDGED_SQL}
                        ORDER BY completed_at DESC, id DESC LIMIT %(newest)s"""  # noqa: S608 (ours)


def _charged(rows: str, **parameters: Any) -> set[int]:
    # LATERAL: joined to the whole ledger, a planner without statistics might read all of it.
    found = fetch_all(
        f"""SELECT family.id FROM ({rows}) family
             CROSS JOIN LATERAL (
                   SELECT FROM workflows_effect e {_CHARGE}
                    WHERE e.workflow_id = family.id AND NOT e.undo AND ({_STANDS}) LIMIT 1) charged""",  # noqa: S608 (ours)
        {**parameters, **_charging_steps()},
    )
    return {pk for (pk,) in found}
