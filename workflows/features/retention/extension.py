"""What legal holds and erasures bring to pages and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.retention.checks import check_retention

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.health.bounded import Link


class RetentionExtension(Extension):
    deploy_checks = (check_retention,)

    def awaiting(self, user: User) -> Sequence[tuple[str, Link]]:
        from workflows.features.retention import page  # a page: not where this is first imported

        return page.awaiting(user)
