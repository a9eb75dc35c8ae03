"""SERIES: how many a scrape may have, because Prometheus stores each combination of labels for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from workflows.definition import WorkflowDefinition
from workflows.wording import ENGINE_CODES

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector
else:
    Collector = object

# The most series of a family, whatever its labels: 5,000 lines are half a megabyte.
MOST_SERIES = 5_000


def declared(definition: WorkflowDefinition) -> int:
    """How many combinations of step and code a definition can produce, if each code has words."""
    return len(definition.steps) * len({*definition.wording.codes, *ENGINE_CODES})


class Bounded(Collector):
    """The metrics of other collectors, at most `MOST_SERIES` of each family, and the number of those left out."""

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily  # an extra

        left_out = GaugeMetricFamily(
            "onramp_series_left_out", f"Series of a family beyond {MOST_SERIES}: not told.", labels=["family"]
        )
        for family in chain.from_iterable(each.collect() for each in self._collectors):
            if beyond := _cut(family):
                left_out.add_metric([family.name], beyond)
            yield family
        yield left_out


def _cut(family: Metric) -> int:
    """Drop all but the first series, with all of their buckets. Returns how many are left out."""
    series = list(dict.fromkeys(_labels(sample.labels.items()) for sample in family.samples))
    if len(series) > MOST_SERIES:
        kept = set(series[:MOST_SERIES])
        family.samples = [sample for sample in family.samples if _labels(sample.labels.items()) in kept]
    return max(0, len(series) - MOST_SERIES)


def _labels(labels: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    return frozenset(label for label in labels if label[0] != "le")
