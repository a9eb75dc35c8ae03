"""What trends bring to pages and metrics."""

from __future__ import annotations

from datetime import datetime

from workflows.extension import Extension
from workflows.features.trends.health import Promises, slow


class TrendsExtension(Extension):
    def figures(self, at: datetime) -> Promises:
        return Promises(slow(at))
