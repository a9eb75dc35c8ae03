"""What the brake brings to pages and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.extension import Extension, Panel
from workflows.features.brake import health
from workflows.features.outages import health as outages
from workflows.health.bounded import Link
from workflows.operations.guards import SEE_SERVICES

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User
    from django.http import HttpRequest

    from workflows.console.workflow_filters import OfFeature
    from workflows.health.failures import Group
    from workflows.models.failure import Cause


class BrakeExtension(Extension):
    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.brake import page

        return (page,)

    def filters(self) -> Sequence[type[OfFeature]]:
        from workflows.features.brake import filters

        return (filters.CauseFilter,)

    def stands_still(self, user: User) -> Sequence[tuple[str, Link]]:
        from workflows.features.brake import cause_page  # a page: not where this is first imported

        braked = health.braked() if user.has_perm(SEE_SERVICES) else []
        return [(cause_page.sentence(row), Link("service", pk=row.pk)) for row in braked]

    def incident(self, cause: Cause, group: Group | None, request: HttpRequest) -> Iterable[Panel]:
        from workflows.console import links
        from workflows.features.brake import cause_page  # as above

        row = outages.standing(cause.name) if request.user.has_perm(SEE_SERVICES) else None
        if row and row.service.is_cause and row.is_in_trouble:
            told = {"braked": cause_page.sentence(row), "braked_url": links.to(Link("service", pk=row.pk))}
            yield Panel("standing", "admin/workflows/brake/incident.html", told)

    def figures(self, at: datetime) -> health.Causes:
        return health.Causes(health.standings(with_events=False))
