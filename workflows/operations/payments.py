"""Whether workflows hold a patient's money, or would take it again, including the children that share their fate.

`workflows.charges` defines a charge, and when money is held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from workflows import charges
from workflows.charges import charges_of
from workflows.definition import wording_of_type
from workflows.models import Workflow
from workflows.models.workflow import UNACKNOWLEDGED_SQL
from workflows.operations.amounts import amount, total
from workflows.postgres import often
from workflows.postgres.statements import fetch_all


class Charges(NamedTuple):
    """The ids of a workflow's charges: those that stand, and those that may have happened."""

    standing: list[int]
    unclear: list[int]


def held_by(workflow: Workflow) -> Charges:
    """The workflow's own charges that are held now; none if its type is unknown here, or charges nothing."""
    held = [each for each in charges_of(workflow) if each.is_held]
    return Charges(*([each.call.pk for each in held if each.is_unclear == unclear] for unclear in (False, True)))


def in_words(workflow: Workflow, held: Charges) -> str:
    """The sum of a workflow's held charges, in words."""
    money, number = wording_of_type(workflow.workflow_type).money, len(held.standing or held.unclear)
    if not number or money is None:
        return "nothing is charged any more"
    has_been = "has been" if held.standing else "may have been"
    return f"{amount(workflow.payload, money, number)} {has_been} charged"


class Found(NamedTuple):
    """A number of charges of a workflow: of `root` itself, or of a descendant that shares its fate.

    `is_reversible`: given back when the workflow fails. `is_unclear`: nobody knows whether anything was charged.
    """

    root: int
    workflow_id: int
    is_reversible: bool
    is_unclear: bool
    number: int


def _with_call(*, child: str, call: str, told: str = "is_reversible, is_unclear, count(*)") -> str:
    """SQL for charges of workflows that meet the condition `call`, and of the descendants that meet `child`."""
    # LATERAL, because without statistics a planner could read the whole ledger for a join.
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


# Includes workflows that are cancelled with this one.
_HELD = _with_call(child="child.status = 'PENDING'", call=charges.HELD)

# Children that were cancelled with the workflow are retried with it. A charge that was made again and stands is on
# record, and is not made once more. However often it was refunded, a retry charges once.
_REFUNDED = _with_call(
    child="family.cancelled_at IS NOT NULL AND child.cancelled_at IS NOT NULL",
    call=f"""({charges.REFUNDED} OR {charges.RETRACTED})
             AND NOT EXISTS (SELECT FROM workflows_effect later
                              WHERE later.workflow_id = e.workflow_id AND later.step = e.step AND NOT later.undo
                                AND later.generation > e.generation
                                AND later.state IN ('done', 'kept') AND later.result IS NOT NULL)""",
    told="false, false, 1",
)


def held(*workflow_ids: int) -> list[Found]:
    """The charges, certain or possible, of these and of those cancelled with them, that were not given back."""
    return _found(_HELD, workflow_ids)


def charged_again(*workflow_ids: int) -> list[Found]:
    """The charges that a retry of these workflows, and of the children retried with them, makes again.

    They were refunded; or somebody had said that they were made by hand, and it was retracted.
    """
    return _found(_REFUNDED, workflow_ids)


def may_have_been_charged(*workflow_ids: int) -> set[int]:
    """The workflows with a held charge, of their own or of a child that is cancelled with them."""
    return {each.root for each in held(*workflow_ids)}


def would_charge_again(*workflow_ids: int) -> set[int]:
    """The workflows whose retry repeats a refunded charge, of their own or of a child that is retried with them."""
    return {each.root for each in charged_again(*workflow_ids)}


def sum_of(found: Iterable[Found]) -> str:
    """The sum of these charges. Each counts once, even if several roots have found it."""
    each_once = {(each.workflow_id, each.is_reversible, each.is_unclear): each.number for each in found}
    numbers: dict[int, int] = {}
    for (workflow_id, *_), number in each_once.items():
        numbers[workflow_id] = numbers.get(workflow_id, 0) + number
    return total(numbers)


def _found(sql: str, workflow_ids: Collection[int]) -> list[Found]:
    rows = fetch_all(sql, {"workflow_ids": list(workflow_ids), **charges.parameters()})
    return [Found(*row) for row in rows]


def failed_with_a_charge(newest: int) -> set[int]:
    """The workflows with a held charge among the newest failures that nobody has acknowledged."""
    return {pk for pk, _ in often.fetch_all(_charged(_NEWEST_FAILURES), {"newest": newest, **charges.parameters()})}


def charged_among(ids: Collection[int]) -> set[int]:
    """Those of these workflows that hold a charge of their own."""
    return {*charges_among(ids)}


def charges_among(ids: Collection[int], condition: str = charges.HELD) -> dict[int, int]:
    """The number of charges of each of these workflows that has any of its own that meet a condition of `charges`."""
    rows = "SELECT id, workflow_type FROM workflows_workflow WHERE id = ANY (%(ids)s)"
    return dict(fetch_all(_charged(rows, condition), {"ids": list(ids), **charges.parameters()}))


_NEWEST_FAILURES = f"""SELECT id, workflow_type FROM workflows_workflow WHERE {UNACKNOWLEDGED_SQL}
                        ORDER BY completed_at DESC, id DESC LIMIT %(newest)s"""  # noqa: S608 (ours)


def _charged(rows: str, condition: str = charges.HELD) -> str:
    return f"""WITH w AS MATERIALIZED ({rows})
        SELECT w.id, count(*) FROM ({charges.calls_of("SELECT id, workflow_type FROM w")}) e
          JOIN w ON w.id = e.workflow_id {charges.JOIN}
         WHERE {condition} GROUP BY w.id"""  # noqa: S608 (ours)
