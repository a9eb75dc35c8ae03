"""What the outbox brings to pages and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.outbox import health
from workflows.features.outbox.bulk_verbs import DISCARD_EACH, REDELIVER_EACH
from workflows.features.outbox.checks import check_outbox

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.health.bounded import Link
    from workflows.health.counts import Counts


class OutboxExtension(Extension):
    checks = (check_outbox,)
    bulk_verbs = (REDELIVER_EACH, DISCARD_EACH)

    def stands_still(self, user: User) -> Sequence[tuple[str, Link]]:
        return health.need_a_person(health.standings()) if user.has_perm(health.SEE_OUTBOX) else ()

    def number_that_stand_still(self, user: User, read: Counts) -> int:
        return len(health.need_a_person(read.destinations)) if user.has_perm(health.SEE_OUTBOX) else 0
