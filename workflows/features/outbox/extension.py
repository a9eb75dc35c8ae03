"""What the outbox brings to pages."""

from __future__ import annotations

from workflows.extension import Extension
from workflows.features.outbox.bulk_verbs import DISCARD_EACH, REDELIVER_EACH


class Outbox(Extension):
    bulk_verbs = (REDELIVER_EACH, DISCARD_EACH)
