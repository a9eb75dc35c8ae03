"""What the brake brings to pages and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.brake import health
from workflows.features.outages.health import SEE_SERVICES
from workflows.health.bounded import Link

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User

    from workflows.console.workflow_filters import OfFeature


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

    def figures(self, at: datetime) -> health.Causes:
        return health.Causes(health.standings())
