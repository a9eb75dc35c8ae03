"""Bulk operations in the workers: maintenance carries them out, a slice at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.bulk import operations
from workflows.operations.chores import BULK_OPERATIONS


class Bulk(Feature):
    chores: ClassVar[Mapping[str, Task]] = {
        BULK_OPERATIONS: Task(operations.do_slice, every=0.2, set_aside=operations.set_aside)
    }
