"""The outbox in the workers: they give up and delete events, because a relay may not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.outbox import chores as of_outbox
from workflows.features.outbox import lifecycle
from workflows.models import Workflow


class Outbox(Feature):
    chores: ClassVar[Mapping[str, Task]] = {
        "give up events": Task(of_outbox.give_up, every=60.0),
        "delete events": Task(of_outbox.delete_old, every=60.0),
    }

    def told(self, workflow: Workflow, what: str) -> None:
        lifecycle.tell(workflow, what)
