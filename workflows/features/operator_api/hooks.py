"""The operator's API in the workers: maintenance lets an undecided proposal lapse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.operator_api import lapsing


class OperatorApi(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"lapse proposals": Task(lapsing.lapse, every=60.0)}
