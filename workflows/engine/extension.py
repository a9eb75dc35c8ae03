"""EXTENSION: the only door between the engine and a feature (docs/adr/0037).

The engine names no feature. Each worker is given those of this release (`workflows.features.installed`), and asks them
in that order. A feature answers with data of `engine.outcomes`; what it says is written by `engine.decide` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from workflows.definition import WorkflowDefinition
from workflows.engine.claim import Claim
from workflows.engine.maintenance import Task
from workflows.engine.outcomes import Failed, Held, Outcome
from workflows.models import Attempt, Workflow
from workflows.state.attempt_log import OpenAttempt

Instead = Held | Failed


class Source:
    """Work that is no workflow, in the same loop: each has a claim, an attempt and a COMMIT of its own.

    A worker looks here when no workflow is due, and every tenth turn first: else a backlog would let none be done.
    """

    def claim_next(self) -> Claim | None:
        """Lock the row of the workflow whose turn it is; None when nothing is due that no other worker has."""
        raise NotImplementedError

    def run(self, claim: Claim, attempt: OpenAttempt) -> Outcome:
        """Do what was claimed, in a savepoint of the claim's transaction. Raises ClaimLost."""
        raise NotImplementedError

    def decide(self, claim: Claim, attempt: OpenAttempt, outcome: Outcome) -> Attempt.Outcome:
        """Write what came of it, after the savepoint, and close the attempt."""
        raise NotImplementedError


class Onlooker:
    """What looks on at the attempts of one worker, and tells others of them. It raises nothing, and runs no SQL."""

    def begin(self, claim: Claim, attempt: OpenAttempt) -> None:
        """The attempt is open; nothing runs yet. `attempt.trace`, which it may set, is what calls hand on."""

    def record(self, workflow: Workflow, attempt: OpenAttempt, ended: Attempt.Outcome) -> None:
        """The attempt is decided and committed; no lock is held. `workflow` is as claimed."""

    def end(self) -> None:
        """The worker has ended; what is left may take some seconds."""


class Feature:
    """What a feature brings to workers. A method that it does not have costs nothing."""

    # Maintenance tasks, by name.
    chores: ClassVar[Mapping[str, Task]] = {}

    def gate(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Instead | None:
        """What to do instead of running `workflow`; None to run it. The first feature that answers decides.

        The claim holds the row, the attempt is open, no savepoint is. To read, there is the claim's connection; to
        write, the attempt log alone. It is not asked before a reversal. Raises ClaimLost, and database errors.
        """

    def left_undone(self, workflow: Workflow, entry: Mapping[str, Any]) -> None:
        """A best-effort step has failed in a workflow that is COMPLETE in a moment, in this transaction, on the claim.

        `entry` is of the attempt's steps; `follow_up` in it says that its failure may pass.
        """

    def told(self, workflow: Workflow, what: str) -> None:
        """Its row is now `what`, one of `definition.LIFECYCLE`, in the open transaction: a claim's, or a person's.

        No savepoint is open. Of "completed" only if its definition publishes that: else that row travels with the
        COMMIT. Raises database errors.
        """

    def source(self, queue: str) -> Source | None:
        """Work of this queue that is no workflow, for one worker; None if it brings none."""
        return None

    def onlooker(self) -> Onlooker | None:
        """What looks on at one worker; None if nothing does. Called in its process, so it may start a thread."""
        return None

    def after_commit(self, workflow: Workflow, outcome: Outcome | None) -> None:
        """The outcome is committed; no lock is held. None is that of a type that this release does not know.

        Raises database errors: then the session is replaced, and what it was to do is left to maintenance.
        """


class Hooks(NamedTuple):
    """What all features have for each place where the engine asks: collected once, as a worker starts."""

    gates: tuple[Callable[[WorkflowDefinition, Workflow, OpenAttempt], Instead | None], ...]
    left_undone: tuple[Callable[[Workflow, Mapping[str, Any]], None], ...]
    told: tuple[Callable[[Workflow, str], None], ...]
    after_commit: tuple[Callable[[Workflow, Outcome | None], None], ...]

    @classmethod
    def of(cls, features: Iterable[Feature]) -> Hooks:
        has = [(each, type(each)) for each in features]
        return cls(
            tuple(each.gate for each, kind in has if kind.gate is not Feature.gate),
            tuple(each.left_undone for each, kind in has if kind.left_undone is not Feature.left_undone),
            tuple(each.told for each, kind in has if kind.told is not Feature.told),
            tuple(each.after_commit for each, kind in has if kind.after_commit is not Feature.after_commit),
        )

    def tell(self, workflow: Workflow, what: str) -> None:
        """Whoever has made it `what`, in this transaction, calls this."""
        for told in self.told:
            told(workflow, what)
