"""Deputies in the workers: maintenance deletes those that were over long ago."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.deputies import operations


class Deputies(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"forget deputies": Task(operations.forget, every=3600.0)}
