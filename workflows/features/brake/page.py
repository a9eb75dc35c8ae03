"""The page of services, with the steps where many fail: a cause has the circuit of a service, and most of its page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.contrib import admin

from workflows.console.verbs import Verb
from workflows.features.brake import cause_page as cause
from workflows.features.brake import health, operations
from workflows.features.outages import service_page
from workflows.features.outages.health import Standing
from workflows.models import Service
from workflows.operations import guards

HOLD = replace(
    service_page.HOLD,
    consequences=lambda row: (cause.of_hold if row.service.is_cause else service_page.HOLD.consequences)(row),
)
TRY_NOW = replace(
    service_page.TRY_NOW,
    operation=operations.try_now,
    consequences=lambda row: (cause.of_try_now if row.service.is_cause else service_page.TRY_NOW.consequences)(row),
)
LET_FAIL = Verb(
    slug="let_fail",
    label="Let fail",
    asks="Let fail what is parked at {}",
    permission=guards.LET_FAIL,
    operation=operations.let_fail,
    applies=lambda row: row.service.is_cause and not row.is_called,
    seen=(("decides", lambda row: [int(operations.lets_fail(row.service))]),),
    consequences=cause.of_let_fail,
    why_not=lambda row, user: operations.why_not_let_fail(row.service, user),
    done="",
    dangerous=True,
)

admin.site.unregister(Service)  # that of services alone


@admin.register(Service)
class CircuitAdmin(service_page.ServiceAdmin):
    list_template = "admin/workflows/brake/list.html"
    verbs = (HOLD, TRY_NOW, LET_FAIL)

    def lines(self) -> dict[str, Any]:
        return {**super().lines(), "causes": [self.line(row, cause.columns) for row in health.standings()]}

    def name_of(self, row: Standing) -> str:
        return health.titled(row) if row.service.is_cause else super().name_of(row)

    def words_for(self, row: Standing) -> tuple[Callable[[Standing], dict[str, Any]], Mapping[str, str]]:
        return (cause.page, cause.KINDS) if row.service.is_cause else super().words_for(row)
