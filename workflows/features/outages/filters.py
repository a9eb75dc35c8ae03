"""The filters of the list of workflows by service, and by the step where many failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from workflows.console.workflow_filters import OfFeature
from workflows.features.outages import cause_page as cause
from workflows.models import Service, Workflow
from workflows.models.workflow import is_parked_on
from workflows.state import parking


class ParkedFilter(OfFeature):
    title = "what it is parked on"
    parameter_name = "parked_on"
    choosable = ("run_now", "cancel")

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        """The services, and causes, that workflows are parked on, and the one asked for: its last may have gone on."""
        names = sorted({*parking.names(), *filter(None, [self.value()])})
        causes = Service.objects.exclude(step="").in_bulk(names)
        return [(name, cause.label_of(causes[name]) if name in causes else name) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        value = self.value()
        return queryset.filter(is_parked_on(value)) if value else queryset


class CauseFilter(OfFeature):
    """What failed for a cause before its brake came on: its page leads here. The list does not offer it."""

    title = "step where many failed"
    parameter_name = "cause"
    choosable = ("retry", "acknowledge")

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        if self.value() is None:
            return []
        found = cause.named(self.value(), request.user)  # a filter without a choice would be passed over
        return [(self.value() or "", cause.label_of(found) if found else "One that is not known")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if self.value() is None:
            return queryset
        found = cause.named(self.value(), request.user)
        return queryset.filter(pk__in=found.judged) if found else queryset.none()
