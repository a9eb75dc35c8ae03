"""What the doors for queues bring to pages."""

from __future__ import annotations

from workflows.extension import Extension
from workflows.features.queues.bulk_verbs import DISCARD_EACH, REDELIVER_EACH


class Queues(Extension):
    bulk_verbs = (REDELIVER_EACH, DISCARD_EACH)
