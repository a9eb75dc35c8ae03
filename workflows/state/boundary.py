"""BOUNDARY: where the engine hands over to a step author's code and gets it back. The worker passes it down."""

from __future__ import annotations

from collections.abc import Sequence

from workflows.definition import Step


class MustStop(Exception):
    """The worker has to stop. Raised before a step, to leave the savepoint as a failure does."""


class Boundary:
    """What a worker does around the steps of its attempt. This class, for an attempt without a worker, does nothing."""

    def before(self, step: Step) -> None:
        """Before a step, or an undo. Raises MustStop, and WorkflowCancelled or WorkflowExpired before a step."""

    def require_available(self, services: Sequence[str]) -> None:
        """Raise ServiceUnavailable if one of the services, or steps, that a step needs is not to be called now."""

    def require_free(self, step: Step) -> None:
        """Raise the error of the step if it is not to be tried just now."""

    def passed(self, step: Step) -> None:
        """The step has run without failing."""

    def calling(self) -> None:
        """The step's own code starts: the time that the database took before that is not the step's."""

    def after(self) -> None:
        """After a step, an undo or a lookup: its calls are known. Raises ClaimLost when the attempt log fails."""
