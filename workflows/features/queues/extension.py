"""What the intake from queues adds to pages, metrics, checks and commands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.queues import health, undelivered
from workflows.features.queues.bulk_verbs import DISCARD_EACH, REDELIVER_EACH
from workflows.features.queues.checks import check_refused_submissions

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User

    from workflows.health.bounded import Link
    from workflows.health.side_processes import Unattended
    from workflows.search.find import Found


class QueuesExtension(Extension):
    commands = ("workflows.features.queues.commands.consumekafka", "workflows.features.queues.commands.consumesqs")
    checks = (check_refused_submissions,)
    bulk_verbs = (REDELIVER_EACH, DISCARD_EACH)

    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.queues import page

        return (page,)

    def found(self, found: Found, user: User) -> Sequence[tuple[str, str]]:
        from workflows.features.queues import page

        return page.found(found, user)

    def stands_still(self, user: User) -> Sequence[tuple[str, Link]]:
        return undelivered.need_a_person() if user.has_perm(undelivered.SEE_MESSAGES) else ()

    def hash_again(self) -> str:
        from workflows.features.queues import refused  # loads the intake

        changed = refused.hash_again()
        return f"{changed:,} refused submissions have their search keys." if changed else ""

    def figures(self, at: datetime) -> health.Messages:
        return health.Messages(undelivered.numbers(), health.wanted())

    def wanted(self, at: datetime) -> Sequence[Unattended]:
        return health.wanted()
