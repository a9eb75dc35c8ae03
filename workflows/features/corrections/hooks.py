"""Corrections in the workers: maintenance lets an undecided one lapse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.corrections import operations


class Corrections(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"lapse corrections": Task(operations.lapse, every=3600.0)}
