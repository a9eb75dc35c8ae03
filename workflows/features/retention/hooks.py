"""Retention in the workers: they empty and delete what is old enough."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.retention import ages, purge


class Retention(Feature):
    chores: ClassVar[Mapping[str, Task]] = {
        "empty old": Task(purge.empty_old, every=60.0),
        "delete old": Task(purge.delete_old, every=60.0),
        **{each.chore: Task(partial(ages.forget, each), every=3600.0) for each in ages.OLD},
    }
