"""THE ORDER of the list of workflows: only one in which an index has the rows that the filters ask for.

By number, for which each state, type and parked service has an index; by time of failure, for failures. No index has
the other columns in order, so a page of such a list would read and sort all rows: it is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from django.contrib import admin
from django.http import HttpRequest

from workflows.console import workflow_filters as filters
from workflows.models import State

PARAMETER = "order"


class Order(NamedTuple):
    """An order of the list. `column` is the one that shows it, `terms` what `get_ordering` returns."""

    name: str
    label: str
    column: str
    terms: tuple[str, ...]


BY_NUMBER = (
    Order("newest", "Newest first", "submitted", ("-id",)),
    Order("oldest", "Oldest first", "submitted", ("id",)),
)
BY_FAILURE = (
    Order("latest", "Latest failure first", "ended", ("-completed_at", "-id")),
    Order("earliest", "Earliest failure first", "ended", ("completed_at", "id")),
)


def orders(request: HttpRequest) -> tuple[Order, ...]:
    """The orders that an index has for the list that is asked for; the first is that of a list without a choice."""
    if not filters.asks_for_failures(request):
        return BY_NUMBER
    # The index of failures by number has neither their step nor whether they are acknowledged.
    is_plain = request.GET.get("state") == State.FAILED and not filters.OF_FAILURES & {*request.GET}
    return (*BY_NUMBER, *BY_FAILURE) if is_plain else BY_FAILURE


def order_of(request: HttpRequest) -> Order:
    """The order of the list; the usual one if the address names none, or one that this list cannot have."""
    offered = orders(request)
    return next((each for each in offered if each.name == request.GET.get(PARAMETER)), offered[0])


class OrderFilter(admin.SimpleListFilter):
    """The choice among the orders, beside the filters. It leaves out no row."""

    title = parameter_name = PARAMETER
    narrows = False

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        self.offered, self.chosen = orders(request), order_of(request)
        return [(each.name, each.label) for each in self.offered]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset

    def choices(self, changelist: Any) -> Iterator[Any]:
        for each in self.offered:
            query = changelist.get_query_string({PARAMETER: each.name})
            yield {"selected": each == self.chosen, "query_string": query, "display": each.label}

    def of_column(self, column: str) -> tuple[str, Order | None]:
        """How the list is sorted by a column, as aria-sort says it, and the order that a click on it gives, if any."""
        offered = [each for each in self.offered if each.column == column]
        if not offered:
            return "", None
        if self.chosen not in offered:
            return "none", offered[0]
        is_up = not self.chosen.terms[0].startswith("-")
        return "ascending" if is_up else "descending", offered[is_up - 1]
