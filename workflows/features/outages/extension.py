"""What outages bring to pages, metrics and checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.extension import Extension, InBar, Panel
from workflows.features.outages import health
from workflows.features.outages.checks import check_keys
from workflows.models import CircuitEvent
from workflows.operations.guards import SEE_SERVICES
from workflows.telling.audited import DID, Source, by_people

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User
    from django.http import HttpRequest

    from workflows.console.workflow_filters import OfFeature
    from workflows.health.counts import Counts
    from workflows.models import Workflow

# There are as many services as the code has clients for, and Home has those that are in trouble.
TROUBLED_SHOWN = 20


class OutagesExtension(Extension):
    checks = (check_keys,)
    bar = (InBar(70, "Services", "admin:workflows_service_changelist", [SEE_SERVICES]),)
    audited = (
        Source(
            rank=3,
            sort=DID,
            rows=lambda: by_people(CircuitEvent.objects.all()),
            told=lambda row: (row.get_kind_display(), f"{row.service}: {row.reason}"),
        ),
    )

    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.outages import service_page

        return (service_page,)

    def filters(self) -> Sequence[type[OfFeature]]:
        from workflows.features.outages import filters

        return (filters.ParkedFilter,)

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        sees_it = workflow.parked_on and user.has_perm(SEE_SERVICES)
        return [Panel("standing", "admin/workflows/service/link.html")] if sees_it else []

    def home(self, request: HttpRequest, read: Counts) -> Iterable[Panel]:
        found = read.of(health.Services)
        troubled = found.troubled[:TROUBLED_SHOWN] if found and request.user.has_perm(SEE_SERVICES) else []
        return [Panel("well", "admin/workflows/service/troubled.html", {"services": troubled})] if troubled else []

    def figures(self, at: datetime) -> health.Services:
        return health.Services(health.standings(with_events=False))
