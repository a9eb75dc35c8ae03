"""PAGING by keyset: a page of a list starts after a row, or ends before one, instead of at an offset.

So page 200 costs as much as the first, and new rows move none to another page. The address has a row's id; its position
is read from the row. An unknown id gives the first page.

First the ids of a page are read by an index in the list's order, and then only these rows. If no single index has a
filter's rows in order, the filter has several arms (`arms`), each with an index of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import F, OrderBy, QuerySet
from django.db.models.fields.tuple_lookups import Tuple, TupleGreaterThan, TupleLessThan
from django.http import HttpRequest
from django.utils.functional import cached_property

from workflows.health.bounded import COUNT_LIMIT
from workflows.health.selecting import ids_of, together

if TYPE_CHECKING:
    Rows = QuerySet[Any, Any]
    Place = Sequence[Any]

AFTER, BEFORE = "after", "before"
# In place of an id: the last page.
END = "end"
# So many rows of a whole list are read by one statement.
AT_ONCE = 500
FIRST_PAGE, PREVIOUS_PAGE, NEXT_PAGE, LAST_PAGE = ("First", "Previous", "Next", "Last")


def is_number(text: str) -> bool:
    """Whether the text can be a row's id, or a time in microseconds."""
    return text.isdecimal() and len(text) < 19


def older(rows: Rows, before: str) -> Rows:
    """The rows before this id, newest first; all rows if it is not a number."""
    rows = rows.order_by("-id")
    return rows.filter(id__lt=int(before)) if is_number(before) else rows


class Filter(admin.SimpleListFilter):
    """A filter of a list in arms: sets of rows that together are those of `queryset`. They may overlap."""

    def arms(self, request: HttpRequest, rows: Rows) -> list[Rows]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Page:
    """The primary keys of a page's rows, in the list's order, and whether there are rows before and after them."""

    ids: list[Any]
    has_earlier: bool = False
    has_later: bool = False


class KeysetList(ChangeList):
    """A list in the order of an index, whatever `?o=` asks for. Its pages start after a row.

    The order is the admin's `get_ordering`: in one direction, ending with the primary key, and never NULL.
    """

    has_more = False
    page = Page([])

    def get_ordering(self, request: HttpRequest, queryset: Rows) -> list[Any]:
        return list(self.model_admin.get_ordering(request))

    def get_filters_params(self, params: Any = None) -> dict[str, list[str]]:
        found: dict[str, list[str]] = super().get_filters_params(params)
        filters = {name: values for name, values in found.items() if name not in (AFTER, BEFORE)}
        if any("\x00" in value for values in filters.values() for value in values):
            raise IncorrectLookupParameters  # PostgreSQL cannot store it
        return filters

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        """The address of the list with other filters, which starts at its first page."""
        query: str = super().get_query_string(new_params, [*(remove or []), AFTER, BEFORE])
        return query

    def get_results(self, request: HttpRequest) -> None:
        self.user = request.user
        arms = self._arms(request)
        order = [_term(each) for each in self.get_ordering(request, self.queryset)]
        self.page = self._page(request, arms, order)
        self.result_list = self._shown(self.page.ids)
        counted = ids_of(arms).count() if self.page.has_earlier or self.page.has_later else len(self.page.ids)
        self.result_count, self.has_more = min(counted, COUNT_LIMIT), counted > COUNT_LIMIT
        # Other attributes that the admin's templates need.
        self.show_full_result_count, self.full_result_count = False, None
        self.show_admin_actions, self.can_show_all, self.multi_page = True, False, False

    @property
    def links(self) -> list[tuple[str, str]]:
        """The other pages: label and address."""
        found = []
        if self.page.has_earlier:
            found += [(FIRST_PAGE, self.get_query_string())]
            found += [(PREVIOUS_PAGE, self.get_query_string({BEFORE: self.page.ids[0]}))]
        if self.page.has_later:
            found += [(NEXT_PAGE, self.get_query_string({AFTER: self.page.ids[-1]}))]
            found += [(LAST_PAGE, self.get_query_string({BEFORE: END}))]
        return found

    def every_row(self, request: HttpRequest, *, most: int) -> Iterator[Any]:
        """The rows that match, on all pages, in the list's order, up to `most`, read AT_ONCE at a time.

        A row that changes meanwhile may be missing, or come as it is now.
        """
        arms = self._arms(request)
        order = [_term(each) for each in self.get_ordering(request, self.queryset)]
        place, left = None, most
        while left and (found := _places(arms, order, place, min(AT_ONCE, left))):
            yield from self._shown([pk for pk, _ in found])
            place, left = found[-1][1], left - len(found)

    def all_ids(self, request: HttpRequest) -> Rows:
        """The primary keys of all rows that match, on all pages, up to COUNT_LIMIT and one."""
        return ids_of(self._arms(request))

    def sorted_by(self, column: str) -> tuple[str, str]:
        """How the list is sorted by a column, as `aria-sort` says it, and the address that sorts by it.

        Both are empty if no index has the rows in that order.
        """
        return "", ""

    @cached_property
    def chips(self) -> list[tuple[str, str, str]]:
        """The active filters: title, label, and the address without each."""
        found = []
        for each in self.filter_specs:
            # Skips unused filters: each choice has its own address, and a filter may have hundreds.
            if not each.used_parameters or not getattr(each, "narrows", True):
                continue
            for choice in list(each.choices(self))[1:]:
                if choice["selected"]:
                    without = self.get_query_string(remove=each.expected_parameters())
                    found.append((str(each.title), str(choice["display"]), without))
        return found

    # --- Which rows -----------------------------------------------------------------------------

    def _page(self, request: HttpRequest, arms: Sequence[Rows], order: Sequence[OrderBy]) -> Page:
        """The page that was asked for. One row more is read, to know whether another page follows."""
        size = self.list_per_page
        after, before = request.GET.get(AFTER, ""), request.GET.get(BEFORE, "")
        if place := self._place(after, order):
            if found := _ids(arms, order, place, size + 1):
                return Page(found[:size], has_earlier=True, has_later=len(found) > size)
            before = END  # the rows after that one are gone
        if before == END:
            found = _ids(arms, _reversed(order), None, size + 1)
            return Page(found[:size][::-1], has_earlier=len(found) > size)
        if place := self._place(before, order):
            found = _ids(arms, _reversed(order), place, size + 1)
            if len(found) > size:
                return Page(found[:size][::-1], has_earlier=True, has_later=True)
        found = _ids(arms, order, None, size + 1)
        return Page(found[:size], has_later=len(found) > size)

    def _place(self, text: str, order: Sequence[OrderBy]) -> Place | None:
        """The position of this row in the order; None if it is not a number, or not in the list."""
        if not is_number(text):
            return None
        expressions = [term.expression for term in order]
        if expressions == [F("id")]:
            return [int(text)]
        row: Place | None = self.root_queryset.order_by().filter(pk=int(text)).values_list(*expressions).first()
        return row if row and None not in row else None

    def _arms(self, request: HttpRequest) -> list[Rows]:
        arms: list[Rows] = [self.root_queryset]
        for each in self.filter_specs:
            arms = [arm for rows in arms for arm in _arms_of(each, request, rows)]
        return arms

    def _shown(self, ids: Sequence[Any]) -> list[Any]:
        rows = self.apply_select_related(self.root_queryset).order_by().filter(pk__in=ids)
        by_id = {row.pk: row for row in rows}
        return [by_id[pk] for pk in ids if pk in by_id]


def _arms_of(each: Any, request: HttpRequest, rows: Rows) -> list[Rows]:
    return each.arms(request, rows) if isinstance(each, Filter) else [each.queryset(request, rows)]


def _ids(arms: Sequence[Rows], order: Sequence[OrderBy], place: Place | None, limit: int) -> list[Any]:
    return [pk for pk, _ in _places(arms, order, place, limit)]


def _places(
    arms: Sequence[Rows], order: Sequence[OrderBy], place: Place | None, limit: int
) -> list[tuple[Any, list[Any]]]:
    """The primary keys of the first rows in this order, or of the first after a position, each with its position."""
    keys = {f"key_{number}": term.expression for number, term in enumerate(order)}
    by = [OrderBy(F(name), descending=term.descending) for name, term in zip(keys, order, strict=True)]
    reads = [arm.order_by().annotate(**keys) for arm in arms]
    if place is not None:
        reads = [rows.filter(_beyond(order, place)) for rows in reads]
    limited = [rows.order_by(*by).values("pk", *keys)[:limit] for rows in reads]
    found = together(limited)
    if len(arms) > 1:
        found = found.order_by(*by)[:limit]
    return [(row["pk"], [row[name] for name in keys]) for row in found]


def _beyond(order: Sequence[OrderBy], place: Place) -> Any:
    """The rows after a position: for the order (a, b) and the position (x, y), (a, b) > (x, y).

    PostgreSQL reads an index from that position for this comparison. `a > x OR a = x AND b > y` reads from its start.
    """
    keys = Tuple(*(F(f"key_{number}") for number in range(len(order))))
    return TupleLessThan(keys, tuple(place)) if order[0].descending else TupleGreaterThan(keys, tuple(place))


def _term(each: Any) -> OrderBy:
    """A part of `get_ordering` as an OrderBy: from a field (with a minus for descending), or an expression."""
    if isinstance(each, str):
        return OrderBy(F(each.removeprefix("-")), descending=each.startswith("-"))
    return each if isinstance(each, OrderBy) else OrderBy(each)


def _reversed(order: Sequence[OrderBy]) -> list[OrderBy]:
    return [OrderBy(term.expression, descending=not term.descending) for term in order]
