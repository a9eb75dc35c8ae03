"""The rollup in the workers: they add up what has happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.trends import rollup


class Trends(Feature):
    chores: ClassVar[Mapping[str, Task]] = {
        "add up": Task(rollup.add_up, every=rollup.EVERY),
        "forget minutes": Task(rollup.forget, every=60.0),
    }
