"""The filters of the list of workflows by time, for links from charts and counts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.utils.functional import cached_property

from workflows import times
from workflows.console import failures
from workflows.definition import definitions
from workflows.health import bounded, by_time, recent_failures
from workflows.health.failures import Ends, ends
from workflows.models import Workflow


class Between(admin.SimpleListFilter):
    """Rows of some time, which the parameter gives as links write it. The page does not offer it."""

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        if not (found := self.interval):
            return []
        since, until = map(times.minute, found)  # with dates, because a bulk operation stores its filters in words
        return [(self.value() or "", f"From {since} to {until}")]

    @property
    def interval(self) -> tuple[datetime, datetime] | None:
        return recent_failures.interval(self.value() or "")


class FailedFilter(Between):
    """Failures between two times, for links from Home."""

    title = "time of failure"
    parameter_name = "failed"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        found = self.interval
        return recent_failures.failed_between(queryset, *found) if found else queryset


class EndedFilter(Between):
    """All failures between two times, also those retried since, for links from charts."""

    title = "time of failure, retried since or not"
    parameter_name = "ended"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        return _with_ids(queryset, self.ends.workflows) if self.value() else queryset

    @cached_property
    def ends(self) -> Ends:
        found = self.interval
        return ends(*found, failures.cause_of(self.request), _type_in(self.request)) if found else Ends(0, {})

    @property
    def told(self) -> str:
        """The sentence above the list: how many failures are listed, and how many of the workflows are still failed."""
        if not self.value():
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
    """Workflows that were submitted between two times, for links from charts."""

    title = "time of submission"
    parameter_name = "came"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        found = self.interval
        return by_time.came(queryset, *found) if found else queryset


class CompletedFilter(Between):
    """Workflows that completed between two times, for links from charts."""

    title = "time of completion"
    parameter_name = "completed"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        return _with_ids(queryset, self.ids) if self.value() else queryset

    @cached_property
    def ids(self) -> list[int]:
        found = self.interval
        return by_time.completed(*found, _type_in(self.request)) if found else []


def _with_ids(rows: QuerySet[Workflow], ids: Iterable[int]) -> QuerySet[Workflow]:
    """Passes one array: PostgreSQL would parse each of ten thousand parameters."""
    return rows.filter(pk__in=RawSQL("SELECT unnest(%s::bigint[])", [list(ids)]))


def _type_in(request: HttpRequest) -> str:
    """The type that the list is asked for; empty for all, and for one that is unknown."""
    asked = request.GET.get("workflow_type", "")
    return asked if asked in definitions() else ""


def _so_many(number: int, what: str) -> str:
    return f"{bounded.text(number)} {what}{'s' * (number != 1)}"
