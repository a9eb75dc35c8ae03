"""BOUNDARY: the points where the engine calls a step author's code and gets control back. The worker passes it down."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from workflows.definition import Step


class MustStop(Exception):
    """The worker has to stop. Raised before a step; it leaves the savepoint as a failure does."""


class Boundary:
    """What a worker does around the steps of its attempt. This class, for attempts without a worker, does nothing."""

    # Who has a say in this workflow's steps. While it is empty, `require_free` and `passed` need not be called.
    asked: Collection[Any] = ()

    def before(self, step: Step) -> None:
        """Before a step or an undo. Raises MustStop; before a step also WorkflowCancelled or WorkflowExpired."""

    def require_available(self, services: Sequence[str]) -> None:
        """Raise ServiceUnavailable if a service or step that a step needs must not be called now."""

    def require_free(self, step: Step) -> None:
        """Raise an error for the step if it must not be tried now."""

    def passed(self, step: Step) -> None:
        """The step has run without failing."""

    def calling(self) -> None:
        """The step's own code starts. The time that the database took before does not count as the step's."""

    def after(self) -> None:
        """After a step, an undo or a lookup: its calls are known. Raises ClaimLost when the attempt log fails."""
