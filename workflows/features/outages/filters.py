"""The filter of the list of workflows by what they are parked on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from workflows.console.workflow_filters import Known, OfFeature
from workflows.models import Service, Workflow
from workflows.models.workflow import is_parked_on
from workflows.operations.guards import SEE_SERVICES
from workflows.state import parking


class ParkedFilter(Known, OfFeature):
    title = "what it is parked on"
    parameter_name = "parked_on"
    choosable = ("run_now", "cancel")

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        """The services, for those who may see them, and causes that workflows are parked on, and the one asked for."""
        names = sorted({*parking.names(), *filter(None, [self.value()])})
        rows, sees = Service.objects.in_bulk(names), request.user.has_perm(SEE_SERVICES)
        seen = [name for name in names if sees or (name in rows and rows[name].is_cause)]
        return [(name, parking.label_of(rows[name]) if name in rows else name) for name in seen]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        value = self.value()
        return queryset.none() if self.told else queryset.filter(is_parked_on(value)) if value else queryset
