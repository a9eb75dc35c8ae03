"""WHAT BECAME of bulk operations on the failures of a cause, for its page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from workflows.console import links
from workflows.extension import Panel
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import page, results
from workflows.features.bulk.telling import name_of
from workflows.models import BulkOperation
from workflows.operations.guards import VIEW_BULK

if TYPE_CHECKING:
    from django.http import HttpRequest

    from workflows.models.failure import Cause

SHOWN = 5


def panels(cause: Cause, request: HttpRequest) -> Iterator[Panel]:
    """The newest operations, each with its counts: only of so many items that these can be looked up."""
    if not request.user.has_perm(VIEW_BULK):
        return
    started = BulkOperation.objects.filter(cause=cause.name).exclude(state=BulkOperation.State.DRAFT)
    rows = list(started.select_related("asked_by").order_by("-id")[:SHOWN])
    few = list(results.few_enough(rows))
    outcomes, became = bulk.outcomes(*few), results.became(*few)
    counts = {row: [each for each in page.counts_of(row, outcomes[row.pk], became[row.pk]) if each[3]] for row in few}
    told = [(row, name_of(row).capitalize(), links.bulk_operation(row.pk), counts.get(row, [])) for row in rows]
    if told:
        yield Panel("below", "admin/workflows/bulk_operation/of_cause.html", {"operations": told})
