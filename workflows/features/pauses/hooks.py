"""Pauses in the workers: maintenance begins one when no worker has its workflow any more. No claim knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.pauses import operations


class Pauses(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"keep up with pauses": Task(operations.keep_up)}
