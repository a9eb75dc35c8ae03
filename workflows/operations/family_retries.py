"""FAMILIES: workflows that were cancelled with their parent are retried with it, by the workers.

There may be thousands, and a request has only seconds. So they are the items of a bulk operation: it survives the death
of a worker, each item has an outcome, and people see the progress. Those about which nothing has to be asked are
retried together, hundreds in a slice (`retrying.retry_together`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from workflows.models import BulkItem, BulkOperation
from workflows.operations.chores import BULK_OPERATIONS, forget_deaths
from workflows.operations.guards import record_for, stated
from workflows.postgres.statements import fetch_all, fetch_one
from workflows.signals import store

if TYPE_CHECKING:
    from django.contrib.auth.models import User

VERB = "retry_family"
# Items a second, of those that have a turn of their own. Each is some twenty statements, and calls no service.
PACE = 50

# Children that were cancelled with their parent, or will be; none while the parent is still being reversed. A request
# that was obeyed or withdrawn does not count if a person has cancelled the child since.
_CHILD = f"""child.parent_id = family.id AND child.cancelled_at IS NOT NULL AND child.emptied_at IS NULL
              AND EXISTS (SELECT FROM workflows_signal s
                           WHERE s.workflow_id = child.id AND s.name = '{store.CANCEL_SIGNAL}'
                             AND s.source = '{store.ENGINE}' AND s.closed_at >= child.cancelled_at)"""
_ANY = f"SELECT EXISTS (SELECT FROM workflows_workflow child, (SELECT %(id)s AS id) family WHERE {_CHILD})"  # noqa: S608 (ours)
# Children come before their parents, which read their results. A child that has failed again since is left out. One
# that is still being reversed may be retried when its turn comes.
_ITEMS = f"""
    WITH RECURSIVE family AS (
        SELECT id, completed_at, 0 AS depth FROM workflows_workflow WHERE id = %(id)s
         UNION ALL
        SELECT child.id, child.completed_at, depth + 1
          FROM family JOIN workflows_workflow child ON {_CHILD} WHERE family.completed_at IS NOT NULL)
    INSERT INTO workflows_bulkitem (operation_id, row, seen)
    SELECT %(bulk)s, id, (extract(epoch FROM completed_at) * 1000000)::bigint FROM family ORDER BY depth DESC, id
    RETURNING row"""  # noqa: S608 (ours)


def is_one(workflow_id: int) -> bool:
    """Whether workflows were cancelled with this one, and would be retried with it."""
    return fetch_one(_ANY, {"id": workflow_id}) == (True,)


def ask(workflow_id: int, *, user: User, reason: str) -> str:
    """Retry the children of a cancelled parent, and then the parent, in the transaction that has its row locked.

    Returns a sentence about what happens; empty if nothing was cancelled with it.
    """
    store.withdraw_cancellation_of_children([workflow_id])
    if not is_one(workflow_id):
        return ""
    made = BulkOperation.objects.create(
        verb=VERB,
        arguments={"root": workflow_id},
        chosen_by=f"cancelled with workflow {workflow_id}, and that workflow",
        selected=0,
        asked_by=user,
        pace=PACE,
        state=BulkOperation.State.RUNNING,
        reason=stated(reason),
    )
    items = [pk for (pk,) in fetch_all(_ITEMS, {"id": workflow_id, "bulk": made.pk})]
    store.withdraw_cancellation_of_children(items)
    made.selected = len(items)
    made.save(update_fields=["selected"])
    forget_deaths(BULK_OPERATIONS)
    record_for(made, user, "Started", reason)
    return f"{_first(made.selected - 1)}, and then this one: see bulk operation {made.pk}."


class UnderWay(NamedTuple):
    """The bulk operation that retries a workflow after its children: the number of its items, and of those left."""

    bulk: int
    selected: int
    left: int

    def __str__(self) -> str:
        done = f"{self.selected - self.left:,} of {self.selected:,} dealt with"
        return f"{_first(self.selected - 1)}, and then this one: {done} (bulk operation {self.bulk})."


def under_way(workflow_id: int) -> UnderWay | None:
    """The bulk operation that has not come to this workflow yet; None if there is none."""
    going_on = [BulkOperation.State.RUNNING, BulkOperation.State.PAUSED]
    found = BulkOperation.objects.filter(verb=VERB, state__in=going_on, arguments={"root": workflow_id}).first()
    if found is None:
        return None
    return UnderWay(found.pk, found.selected, found.items.filter(outcome=BulkItem.Outcome.OPEN).count())


def _first(number: int) -> str:
    which = "1 workflow that was" if number == 1 else f"{number:,} workflows that were"
    return f"{which} cancelled with it {'is' if number == 1 else 'are'} being retried first"
