"""What bulk operations bring to pages and commands."""

from __future__ import annotations

from workflows.extension import Extension
from workflows.features.bulk.verbs import VERBS


class Bulk(Extension):
    bulk_verbs = VERBS
