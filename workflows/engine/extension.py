"""EXTENSION: the only door between the engine and a feature (docs/adr/0037).

The engine names no feature. Each worker is given those of this release (`workflows.features.installed`), and asks them
in that order. A feature answers with data of `engine.outcomes`; what it says is written by `engine.decide` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from workflows.definition import Step, WorkflowDefinition
from workflows.engine.claim import Claim
from workflows.engine.maintenance import Task
from workflows.engine.outcomes import Failed, Held, Outcome
from workflows.errors import RetryableStepError, StepError
from workflows.models import Attempt, Workflow
from workflows.state.attempt_log import OpenAttempt, PastAttempt
from workflows.state.transitions import Parking

T = TypeVar("T")

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


class Part:
    """A feature at one worker: it takes part in each attempt, and may remember from one to the next.

    The claim holds the workflow's row throughout. A part reads on the claim's connection, and writes on the attempt log
    alone, so what it has written outlives the attempt. What fails there raises ClaimLost.
    """

    # SQL of one value, that the statement which claims a workflow reads.
    claim_reads: ClassVar[str] = "NULL"
    # SQL on a row of `workflows_workflow` and on the parameter `release`: where it is true (NULL is not), the row is
    # left to workers of another release. It is asked of each due row, before the row is locked.
    claim_leaves: ClassVar[str] = ""

    def begin(self, claim: Claim, read: Any, attempt: OpenAttempt, caps: Mapping[str, int]) -> bool:
        """The attempt is open, no savepoint is. `read` is the value of `claim_reads`, `caps` how many calls to each
        limited service people let be under way at once.

        False: it has nothing to say of this workflow, and `let_fail`, `require_free` and `passed` are not called.
        """
        return True

    def end(self) -> None:
        """The savepoint is gone, nothing is decided. It is called whatever has happened, also in `begin`."""

    def let_fail(self, workflow: Workflow) -> StepError | None:
        """The error with which people let the workflow fail, before poison judges it and any gate is asked.

        No savepoint is open. It is not asked before a reversal.
        """

    def require_free(self, step: Step) -> None:
        """In the savepoint, before a step or an undo does anything, unless its call is DONE. Raising fails the step."""

    def require_available(self, services: Sequence[str]) -> None:
        """In the savepoint, before the INTENT of a step that needs something. Raising fails the step."""

    def passed(self, step: Step) -> None:
        """In the savepoint: a step or an undo has run without failing."""

    def after(self) -> None:
        """After each step, undo and lookup, and once more when their savepoint is gone: what they met is known."""

    def find_parking(self, workflow: Workflow, error: BaseException) -> Parking | None:
        """What to park the workflow on after `error` of a step, an undo or a lookup; None not to park it.

        The savepoint is gone, nothing is decided. `end` may have been called.
        """

    def park_instead(
        self, workflow: Workflow, step: str, error: BaseException, description: Mapping[str, str], *, judges: bool
    ) -> Parking | None:
        """What to park the workflow on instead of holding this failure against it; None to go on as without the part.

        `step` may be the name of an undo, `description` is the error as it may be shown. `judges`: without an answer
        the workflow fails for good. Called as `find_parking` is.
        """

    def crashed(self, workflow: Workflow, past: PastAttempt) -> RetryableStepError | None:
        """The workflow has crashed a worker, last in `past.died_in`: the error by which `find_parking` parks it before
        it is tried again; None to let poison judge it.

        Asked before each attempt, also one that reverses, until one is decided. No savepoint is open.
        """


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

    def at_worker(self) -> Part | None:
        """Its part in the attempts of one worker; None if it has none. Called once, as the worker starts."""
        return None

    def source(self, queue: str, reads: Sequence[str]) -> Source | None:
        """Work of this queue that is no workflow, for one worker; None if it brings none.

        Its claims carry the values of `reads`, the SQL of what the parts of this worker read with a claim.
        """
        return None

    def onlooker(self) -> Onlooker | None:
        """What looks on at one worker; None if nothing does. Called in its process, so it may start a thread."""
        return None

    def after_commit(self, workflow: Workflow, outcome: Outcome | None) -> None:
        """The outcome is committed; no lock is held. None is that of a type that this release does not know.

        Raises database errors: then the session is replaced, and what it was to do is left to maintenance.
        """


def first(answers: Iterable[T | None]) -> T | None:
    """The first feature that has an answer decides: the others are not asked."""
    return next((each for each in answers if each), None)


class Hooks(NamedTuple):
    """What all features have for each place where the engine asks: collected once, as a worker starts."""

    parts: tuple[Part, ...]
    gates: tuple[Callable[[WorkflowDefinition, Workflow, OpenAttempt], Instead | None], ...]
    left_undone: tuple[Callable[[Workflow, Mapping[str, Any]], None], ...]
    told: tuple[Callable[[Workflow, str], None], ...]
    after_commit: tuple[Callable[[Workflow, Outcome | None], None], ...]

    @classmethod
    def of(cls, features: Iterable[Feature]) -> Hooks:
        has = [(each, type(each)) for each in features]
        return cls(
            tuple(part for each, _ in has if (part := each.at_worker())),
            tuple(each.gate for each, kind in has if kind.gate is not Feature.gate),
            tuple(each.left_undone for each, kind in has if kind.left_undone is not Feature.left_undone),
            tuple(each.told for each, kind in has if kind.told is not Feature.told),
            tuple(each.after_commit for each, kind in has if kind.after_commit is not Feature.after_commit),
        )

    def tell(self, workflow: Workflow, what: str) -> None:
        """Whoever has made it `what`, in this transaction, calls this."""
        for told in self.told:
            told(workflow, what)

    @property
    def claim_reads(self) -> tuple[str, ...]:
        return tuple(part.claim_reads for part in self.parts)

    @property
    def claim_leaves(self) -> tuple[str, ...]:
        return tuple(part.claim_leaves for part in self.parts if part.claim_leaves)

    def find_parking(self, workflow: Workflow, error: BaseException) -> Parking | None:
        return first(part.find_parking(workflow, error) for part in self.parts)

    def park_instead(
        self, workflow: Workflow, step: str, error: BaseException, description: Mapping[str, str], *, judges: bool
    ) -> Parking | None:
        return first(part.park_instead(workflow, step, error, description, judges=judges) for part in self.parts)

    def crashed(self, workflow: Workflow, past: PastAttempt) -> RetryableStepError | None:
        return first(part.crashed(workflow, past) for part in self.parts)
