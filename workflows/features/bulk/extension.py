"""What bulk operations bring to pages and commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.bulk.verbs import VERBS
from workflows.health.bounded import Link

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class BulkExtension(Extension):
    bulk_verbs = VERBS

    def awaiting(self, user: User) -> Sequence[tuple[str, Link]]:
        from workflows.features.bulk import page  # a page: not where this is first imported

        return [(sentence, Link("bulkoperation", pk=str(row.pk))) for row, sentence in page.awaiting(user)]
