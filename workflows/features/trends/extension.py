"""What trends add to pages and metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from workflows.extension import Extension, Mark, Panel
from workflows.features.trends.health import Promises, slow

if TYPE_CHECKING:
    from django.http import HttpRequest

    from workflows.console.charts import Chart
    from workflows.health.counts import Counts
    from workflows.models.failure import Cause


class TrendsExtension(Extension):
    def figures(self, at: datetime) -> Promises:
        return Promises(slow(at))

    def home(self, request: HttpRequest, read: Counts) -> Iterator[Panel]:
        from workflows.features.trends import page

        trends = page.of_workflows(request.GET.get("range", ""), read.at, request.GET.get("workflow_type", ""))
        most = ": the most frequent" if len(trends["failures"]) == page.BARS else ""
        caption = f"Failures, by step and code{most}"
        bars = {"caption": caption, "bars": trends["failures"], "none": "Nothing has failed."}
        yield Panel("going", "admin/workflows/trends.html", {"trends": trends})
        yield Panel("bars", "admin/workflows/bars.html", bars)

    def charts(self, shown: str, now: datetime, causes: Collection[tuple[str, str, str]]) -> Mapping[Any, Chart]:
        from workflows.features.trends import page

        return page.of_failures(shown, now, causes)

    def marks(self, cause: Cause, shown: str, now: datetime) -> Iterable[Mark]:
        from workflows.features.trends import marks

        return marks.of(cause, shown, now)
