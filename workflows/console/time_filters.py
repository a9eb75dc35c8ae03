"""The filters of the list of workflows by time: for people, and for links from charts and counts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.core.exceptions import BadRequest
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.functional import cached_property

from workflows import times
from workflows.console import failures, paging
from workflows.definition import definitions
from workflows.health import bounded, by_time, recent_failures
from workflows.health.failures import Ends, ends
from workflows.health.selecting import with_ids
from workflows.models import Workflow

# What a list says whose address has a value that no filter knows, as that of an old link.
UNKNOWN = "A filter of this address is not known here, so the list shows nothing. Take the filter away."
# The form by which people choose days: the parameter of the filter, and the first and the last day.
OF, SINCE, UNTIL = "of", "since", "until"


class Between(admin.SimpleListFilter):
    """Rows of some time, which the parameter gives as links write it. `is_offered`: the page offers times and days."""

    template = "admin/workflows/time_filter.html"
    is_offered = True

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        offered: dict[str, str] = {}
        if self.is_offered:
            offered |= {name: str(label) for name, (label, _) in recent_failures.RECENT.items()}
        if found := self.interval:
            given = self.value() or ""
            # With dates, because a bulk operation stores its filters in words.
            told = "From {} to {}".format(*map(times.minute, found))
            offered[given] = f"{offered[given]} ({told[0].lower()}{told[1:]})" if given in offered else told
        elif self.value():
            offered[self.value() or ""] = "Unknown"
        return list(offered.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if not self.value():
            return queryset
        return self.rows_in(queryset, *self.interval) if self.interval else queryset.none()

    def rows_in(self, rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
        """Those of the rows that are of this time."""
        raise NotImplementedError

    @property
    def told(self) -> str:
        """The sentence above a list that does not show what was asked for."""
        return UNKNOWN if self.value() and not self.interval else ""

    @property
    def others(self) -> list[tuple[str, str]]:
        """What the form keeps of the address: the other filters."""
        gone = {self.parameter_name, paging.AFTER, paging.BEFORE}
        return [(name, str(value)) for name, value in self.request.GET.items() if name not in gone]

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day of the chosen time, for the form; empty without one."""
        if not (found := self.interval):
            return "", ""
        since, until = (timezone.localtime(each) for each in (found[0], found[1] - times.TICK))
        return f"{since:%Y-%m-%d}", f"{until:%Y-%m-%d}"

    @cached_property
    def interval(self) -> tuple[datetime, datetime] | None:
        return recent_failures.interval(self.value() or "")


class FailedFilter(Between):
    """Failures between two times."""

    title = "time of failure"
    parameter_name = "failed"

    def rows_in(self, rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
        return recent_failures.failed_between(rows, since, until)


class EndedFilter(Between):
    """All failures between two times, also those retried since, for links from charts."""

    title = "time of failure, retried since or not"
    parameter_name = "ended"
    is_offered = False

    def rows_in(self, rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
        return with_ids(rows, self.ends.workflows)

    @cached_property
    def ends(self) -> Ends:
        found = self.interval
        return ends(*found, failures.cause_of(self.request), _type_in(self.request)) if found else Ends(0, {})

    @property
    def told(self) -> str:
        """The sentence above the list: how many failures are listed, and how many of the workflows are still failed.

        Empty if a state is asked for: then the list has only some of these workflows.
        """
        if not self.interval:
            return super().told
        if "state" in self.request.GET:
            return ""
        number, workflows = self.ends.number, len(self.ends.workflows)
        failed = sum(self.ends.workflows.values())
        told = f"{_so_many(number, 'failure')} of {_so_many(workflows, 'workflow')}."
        if failed == workflows:
            return told
        if not failed:
            return f"{told} None of them is failed still."
        return (
            f"{told} {failed:,} of them {'is' if failed == 1 else 'are'} failed still; the others have gone on since."
        )


class CameFilter(Between):
    """Workflows that were submitted between two times."""

    title = "time of submission"
    parameter_name = "came"

    def rows_in(self, rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
        return by_time.came(rows, since, until)


class CompletedFilter(Between):
    """Workflows that completed between two times."""

    title = "time of completion"
    parameter_name = "completed"

    def rows_in(self, rows: QuerySet[Workflow], since: datetime, until: datetime) -> QuerySet[Workflow]:
        return with_ids(rows, self.found.ids)

    @cached_property
    def found(self) -> by_time.Completed:
        given = self.interval
        return by_time.completed(*given, _type_in(self.request)) if given else by_time.Completed([], are_all=True)

    @property
    def told(self) -> str:
        """The sentence above a list that does not have all of them."""
        if not self.interval or self.found.are_all:
            return super().told
        return "More completed in that time than can be listed, and the oldest are left out: choose fewer days."


def chosen(sent: QueryDict) -> tuple[str, str]:
    """The query of the list for the days that the form sent, and why they cannot be, as a sentence.

    Raises BadRequest for a filter that has no form.
    """
    query = sent.copy()
    of, *days = (str(query.pop(name, [""])[-1]).strip() for name in (OF, SINCE, UNTIL))
    if of not in OFFERED:
        raise BadRequest("There is no such filter.")
    since = times.start_of_typed(days[0] or EARLIEST)
    until = times.start_of_typed(days[1] or str(timezone.localdate()), later=1)
    refusal = ""
    if since is None or until is None:
        refusal = "Choose days of the years 1900 to 9999: nothing has changed."
    elif since >= until:
        refusal = "The first day comes after the last one: nothing has changed."
    else:
        query.pop(of, None)
        if any(days):
            query[of] = recent_failures.interval_text(since, until)
    return query.urlencode(safe="/:"), refusal


OFFERED = [each.parameter_name for each in (CameFilter, CompletedFilter, FailedFilter)]
# The first day, if only the last one is chosen.
EARLIEST = "2000-01-01"


def _type_in(request: HttpRequest) -> str:
    """The type that the list is asked for; empty for all, and for one that is unknown."""
    asked = request.GET.get("workflow_type", "")
    return asked if asked in definitions() else ""


def _so_many(number: int, what: str) -> str:
    return f"{bounded.text(number)} {what}{'s' * (number != 1)}"
