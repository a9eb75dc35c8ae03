"""The list of workflows as a file: the rows that the filters ask for, in the list's order, masked as on the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.contrib.admin import AdminSite
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.utils.text import capfirst
from django.views.decorators.http import require_POST

from workflows import operations
from workflows.console import csv_file
from workflows.console.workflow_order import order_of
from workflows.health import bounded
from workflows.models import Workflow
from workflows.telling import patient, words
from workflows.wording import name_of_code

if TYPE_CHECKING:
    from workflows.console.workflow_list import WorkflowAdmin, WorkflowList

# The most rows of a file: as far as a list is counted.
MOST = bounded.COUNT_LIMIT
COLUMNS = (
    *("Number", "Type", "About", "State", "Step", "Attempts", "Waiting for", "Next attempt, or end of the wait (UTC)"),
    *("Error", "Money", "Submitted (UTC)", "Ended (UTC)"),
)


@require_POST
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponseBase:
    """Stream the list that the address asks for, after an audit line that says who took which list."""
    page: WorkflowAdmin = site.get_model_admin(Workflow)  # type: ignore[assignment]
    if not page.has_view_permission(request):
        raise PermissionDenied
    assert request.user.is_authenticated
    try:
        listed: WorkflowList = page.get_changelist_instance(request)  # type: ignore[assignment]
    except IncorrectLookupParameters as error:
        raise BadRequest("There is no such filter.") from error
    operations.record_list(request.user, chosen=_in_words(request, listed))
    return csv_file.answer("workflows", _rows(request, page, listed))


def _in_words(request: HttpRequest, listed: WorkflowList) -> str:
    filters = [f"{title}: {label}" for title, label, _ in listed.chips]
    number = f"the first {MOST:,} of more" if listed.has_more else f"{listed.result_count:,} of them"
    return "; ".join([*(filters or ["all workflows"]), order_of(request).label.lower(), number])


def _rows(request: HttpRequest, page: WorkflowAdmin, listed: WorkflowList) -> Iterator[Sequence[object]]:
    yield COLUMNS
    for number, row in enumerate(listed.every_row(request, most=MOST + 1)):
        if number == MOST:
            yield ["", f"Not more than {MOST:,} workflows: filter the list further for the rest"]
            return
        yield _cells(page, row)


def _cells(page: WorkflowAdmin, row: Any) -> list[object]:
    return [
        row.pk,
        words.workflow_type(row.workflow_type),
        patient.masked_by(row.workflow_type, row.about),
        words.state_label(row),
        page.step(row),
        page.attempt(row),
        page.waits_for(row),
        _utc(words.next_attempt_at(row)),
        capfirst(name_of_code(page.error_told(row))),
        row.money,
        _utc(row.created_at),
        _utc(row.completed_at),
    ]


def _utc(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if at else ""
