"""Undo in the workers: maintenance stores the signal of a decision that can no longer be undone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.operations import undoing


class Undo(Feature):
    chores: ClassVar[Mapping[str, Task]] = {undoing.CHORE: Task(undoing.store_due)}
