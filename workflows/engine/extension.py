"""EXTENSION: the only door between the engine and a feature (docs/adr/0037).

The engine names no feature. Each worker is given those of this release (`workflows.features.installed`), and asks them
in that order. A feature answers with data of `engine.outcomes`; what it says is written by `engine.decide` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, NamedTuple

from workflows.definition import WorkflowDefinition
from workflows.engine.maintenance import Task
from workflows.engine.outcomes import Failed, Held, Outcome
from workflows.models import Workflow
from workflows.state.attempt_log import OpenAttempt

Instead = Held | Failed


class Feature:
    """What a feature brings to workers. A method that it does not have costs nothing."""

    # Maintenance tasks, by name.
    chores: ClassVar[Mapping[str, Task]] = {}

    def gate(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Instead | None:
        """What to do instead of running `workflow`; None to run it. The first feature that answers decides.

        The claim holds the row, the attempt is open, no savepoint is. To read, there is the claim's connection; to
        write, the attempt log alone. It is not asked before a reversal. Raises ClaimLost, and database errors.
        """

    def after_commit(self, workflow: Workflow, outcome: Outcome | None) -> None:
        """The outcome is committed; no lock is held. None is that of a type that this release does not know.

        Raises database errors: then the session is replaced, and what it was to do is left to maintenance.
        """


class Hooks(NamedTuple):
    """Of all features what each place has to ask: collected once, as a worker starts."""

    gates: tuple[Callable[[WorkflowDefinition, Workflow, OpenAttempt], Instead | None], ...]
    after_commit: tuple[Callable[[Workflow, Outcome | None], None], ...]

    @classmethod
    def of(cls, features: Iterable[Feature]) -> Hooks:
        features = tuple(features)
        return cls(
            tuple(each.gate for each in features if type(each).gate is not Feature.gate),
            tuple(each.after_commit for each in features if type(each).after_commit is not Feature.after_commit),
        )
