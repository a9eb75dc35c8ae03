"""BOUNDARY: where the engine hands over to a step author's code and gets it back. The worker passes it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workflows.definition import Step
from workflows.errors import StepError


class MustStop(Exception):
    """The worker has to stop. Raised before a step, to leave the savepoint as a failure does."""


class Boundary:
    """What a worker does around the steps of its attempt. This class, for an attempt without a worker, does nothing."""

    def before(self, step: Step) -> None:
        """Before a step, or an undo. Raises MustStop, and WorkflowCancelled or WorkflowExpired before a step."""

    def require_available(self, services: Sequence[str]) -> None:
        """Raise ServiceUnavailable if one of the services, or steps, that a step needs is not to be called now."""

    def let_fail(self) -> StepError | None:
        """The error with which a workflow fails before any step, as people want it."""
        return None

    def require_free(self, step: Step) -> None:
        """Raise Braked if many workflows fail at the step, and this one is not to try it."""

    def passed(self, step: Step) -> None:
        """The step has run without failing."""

    def take_passes(self, step_name: str, code: str) -> Mapping[str, int]:
        """How many have passed that step, by API client, and are in no vote yet about the cause of this code."""
        return {}

    def calling(self) -> None:
        """The step's own code starts: the time that the database took before that is not the step's."""

    def after(self) -> None:
        """After a step, an undo or a lookup: its calls are known. Raises ClaimLost when the attempt log fails."""
