"""Whether workflows hold a patient's money, or would take it again, with the children to which the same happens.

What a charge is, and when money is held, `workflows.charges` says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from workflows import charges
from workflows.charges import charges_of
from workflows.definition import wording_of_type
from workflows.models import Workflow
from workflows.models.workflow import UNACKNOWLEDGED_SQL
from workflows.operations.amounts import amount, total
from workflows.postgres.statements import fetch_all


class Charges(NamedTuple):
    """The calls of one workflow that charge, by their ids: those that stand, and those that may have happened."""

    standing: list[int]
    unclear: list[int]


def held_by(workflow: Workflow) -> Charges:
    """The workflow's own charges that are held now; none if its type is not known here, or charges nothing."""
    held = [each for each in charges_of(workflow) if each.is_held]
    return Charges(*([each.call.pk for each in held if each.is_unclear == unclear] for unclear in (False, True)))


def in_words(workflow: Workflow, held: Charges) -> str:
    """What a workflow's charges come to."""
    money, number = wording_of_type(workflow.workflow_type).money, len(held.standing or held.unclear)
    if not number or money is None:
        return "nothing is charged any more"
    has_been = "has been" if held.standing else "may have been"
    return f"{amount(workflow.payload, money, number)} {has_been} charged"


class Found(NamedTuple):
    """So many charges of a workflow: that of `root`, or a descendant's to which the same happens as to `root`.

    `is_reversible`: given back when it fails. `is_unclear`: nobody knows whether anything was charged.
    """

    root: int
    workflow_id: int
    is_reversible: bool
    is_unclear: bool
    number: int


def _with_call(*, child: str, call: str, told: str = "is_reversible, is_unclear, count(*)") -> str:
    """SQL for the charges of workflows for which `call` holds, and of their descendants to which the same happens."""
    # LATERAL: joined to the whole ledger, a planner without statistics might read all of it.
    return f"""
        WITH RECURSIVE family AS (
            SELECT id AS root, id, workflow_type, cancelled_at
              FROM workflows_workflow WHERE id = ANY (%(workflow_ids)s)
             UNION ALL
            SELECT root, child.id, child.workflow_type, child.cancelled_at
              FROM family JOIN workflows_workflow child ON child.parent_id = family.id AND {child})
        SELECT root, w.id, {told} FROM family w
         CROSS JOIN LATERAL (
               SELECT {charges.REVERSIBLE} AS is_reversible, {charges.UNCLEAR} AS is_unclear
                 FROM workflows_effect e {charges.JOIN} WHERE e.workflow_id = w.id AND {call}) charged
         GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""  # noqa: S608 (ours)


# What is cancelled with the workflow counts.
_HELD = _with_call(child="child.status = 'PENDING'", call=charges.HELD)

# Children that were cancelled with it are retried with it. What was charged again since, and stands, is on record, and
# is not charged once more. Whatever was refunded before, a retry charges once.
_REFUNDED = _with_call(
    child="family.cancelled_at IS NOT NULL AND child.cancelled_at IS NOT NULL",
    call=f"""{charges.REFUNDED}
             AND NOT EXISTS (SELECT FROM workflows_effect later
                              WHERE later.workflow_id = e.workflow_id AND later.step = e.step AND NOT later.undo
                                AND later.generation > e.generation
                                AND later.state IN ('done', 'kept') AND later.result IS NOT NULL)""",
    told="false, false, 1",
)


def held(*workflow_ids: int) -> list[Found]:
    """What these workflows, and what is cancelled with them, have charged, or may have, and not given back."""
    return _found(_HELD, workflow_ids)


def charged_again(*workflow_ids: int) -> list[Found]:
    """What a retry of these, and of the children that are retried with them, charges though it was refunded."""
    return _found(_REFUNDED, workflow_ids)


def may_have_been_charged(*workflow_ids: int) -> set[int]:
    """Those of which a charge is held, their own or of a child cancelled with them."""
    return {each.root for each in held(*workflow_ids)}


def would_charge_again(*workflow_ids: int) -> set[int]:
    """Those whose retry charges again what was refunded, their own or of a child that is retried with them."""
    return {each.root for each in charged_again(*workflow_ids)}


def sum_of(found: Iterable[Found]) -> str:
    """What these charges come to, each once, whatever the number of roots that it was found by."""
    each_once = {(each.workflow_id, each.is_reversible, each.is_unclear): each.number for each in found}
    numbers: dict[int, int] = {}
    for (workflow_id, *_), number in each_once.items():
        numbers[workflow_id] = numbers.get(workflow_id, 0) + number
    return total(numbers)


def _found(sql: str, workflow_ids: Collection[int]) -> list[Found]:
    rows = fetch_all(sql, {"workflow_ids": list(workflow_ids), **charges.parameters()})
    return [Found(*row) for row in rows]


def failed_with_a_charge(newest: int) -> set[int]:
    """Those of the newest failed workflows that hold a charge, and that nobody has acknowledged."""
    return _charged(_NEWEST_FAILURES, newest=newest)


def charged_among(ids: Collection[int]) -> set[int]:
    """Those of these workflows that hold a charge of their own."""
    return _charged("SELECT id, workflow_type FROM workflows_workflow WHERE id = ANY (%(ids)s)", ids=list(ids))


_NEWEST_FAILURES = f"""SELECT id, workflow_type FROM workflows_workflow WHERE {UNACKNOWLEDGED_SQL}
                        ORDER BY completed_at DESC, id DESC LIMIT %(newest)s"""  # noqa: S608 (ours)


def _charged(rows: str, **parameters: Any) -> set[int]:
    # LATERAL: joined to the whole ledger, a planner without statistics might read all of it.
    found = fetch_all(
        f"""SELECT w.id FROM ({rows}) w
             CROSS JOIN LATERAL (
                   SELECT FROM workflows_effect e {charges.JOIN}
                    WHERE e.workflow_id = w.id AND {charges.HELD} LIMIT 1) charged""",  # noqa: S608 (ours)
        {**parameters, **charges.parameters()},
    )
    return {pk for (pk,) in found}
