"""Cases in the workers: maintenance ends what a lead was asked for, once somebody has acted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.cases import operations


class Cases(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"close what leads were asked": Task(operations.close_asked, every=60.0)}
