"""Traces in the workers: a worker reports its attempts to a collector, if there is one."""

from __future__ import annotations

from workflows.engine.extension import Feature, Onlooker
from workflows.features.traces import traces


class Traces(Feature):
    def onlooker(self) -> Onlooker | None:
        return traces.begin()
