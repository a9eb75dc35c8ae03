"""What the outbox brings to pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.outbox import health
from workflows.features.outbox.bulk_verbs import DISCARD_EACH, REDELIVER_EACH

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.health.bounded import Link
    from workflows.health.counts import Counts


class OutboxExtension(Extension):
    bulk_verbs = (REDELIVER_EACH, DISCARD_EACH)

    def stands_still(self, user: User) -> Sequence[tuple[str, Link]]:
        return health.need_a_person(health.standings()) if user.has_perm(health.SEE_OUTBOX) else ()

    def number_that_stand_still(self, user: User, read: Counts) -> int:
        return len(health.need_a_person(read.destinations)) if user.has_perm(health.SEE_OUTBOX) else 0
