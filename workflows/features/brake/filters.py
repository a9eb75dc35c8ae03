"""The filter of the list of workflows by the step where many failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from workflows.console.workflow_filters import OfFeature
from workflows.features.brake import cause_page as cause
from workflows.models import Workflow
from workflows.state.parking import label_of


class CauseFilter(OfFeature):
    """What failed for a cause before its brake came on: its page leads here. The list does not offer it."""

    title = "step where many failed"
    parameter_name = "cause"
    choosable = ("retry", "acknowledge")

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        if self.value() is None:
            return []
        found = cause.named(self.value(), request.user)  # a filter without a choice would be passed over
        return [(self.value() or "", label_of(found) if found else "One that is not known")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if self.value() is None:
            return queryset
        found = cause.named(self.value(), request.user)
        return queryset.filter(pk__in=found.judged) if found else queryset.none()
