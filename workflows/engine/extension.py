"""EXTENSION: the only door between the engine and a feature (docs/adr/0037).

The engine names no feature. Each worker gets the features of this release (`workflows.features.installed`), and asks
them in that order. A feature answers with data from `engine.outcomes`; only `engine.decide` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
    """Work other than workflows for the same loop; each piece has a claim, an attempt and a COMMIT of its own.

    A worker looks here when no workflow is due, and first in every tenth turn, so that a backlog cannot starve it.
    """

    def claim_next(self) -> Claim | None:
        """Lock the row of the next workflow; None when nothing is due or other workers hold all of it."""
        raise NotImplementedError

    def run(self, claim: Claim, attempt: OpenAttempt) -> Outcome:
        """Do the claimed work, in a savepoint of the claim's transaction. Raises ClaimLost."""
        raise NotImplementedError

    def decide(self, claim: Claim, attempt: OpenAttempt, outcome: Outcome) -> Attempt.Outcome:
        """Write the outcome after the savepoint, and close the attempt."""
        raise NotImplementedError


class Onlooker:
    """Observes the attempts of one worker, and reports them to systems outside. It raises nothing and runs no SQL."""

    def begin(self, claim: Claim, attempt: OpenAttempt) -> None:
        """The attempt is open; nothing runs yet. It may set `attempt.trace`, which calls pass on."""

    def record(self, workflow: Workflow, attempt: OpenAttempt, ended: Attempt.Outcome) -> None:
        """The attempt is decided and committed; no lock is held. `workflow` is as it was claimed."""

    def end(self) -> None:
        """The worker has ended. Sending the rest may take some seconds."""


class Part:
    """A feature's part in the attempts of one worker. It may remember things from one attempt to the next.

    The claim holds the row lock throughout. A part reads on the claim's connection, and writes only on the attempt log,
    so that its writes outlive the attempt. A failed write there raises ClaimLost.
    """

    # SQL for one value, which the claiming statement reads.
    claim_reads: ClassVar[str] = "NULL"
    # A condition in SQL on a row of `workflows_workflow`, with the parameter `release`. If it is true (not NULL), the
    # row is left to workers of another release. It is evaluated for each due row, before the row is locked.
    claim_leaves: ClassVar[str] = ""

    # What `after` has to write: while it is empty, `after` is not called.
    news: Collection[Any] = ("whatever",)

    def begin(self, claim: Claim, read: Any, attempt: OpenAttempt, caps: Mapping[str, int]) -> bool:
        """The attempt is open, without a savepoint. `read` is the value of `claim_reads`; `caps` says how many calls to
        each limited service people allow at once.

        Return False to stay out of this workflow: `let_fail`, `require_free` and `passed` are then not called.
        """
        return True

    def end(self) -> None:
        """The savepoint is gone, nothing is decided. Always called, even if `begin` has failed. Costs nothing if it is
        not overridden.
        """

    def let_fail(self, workflow: Workflow) -> StepError | None:
        """The error with which people let the workflow fail; called before poison judges it and before the gates.

        No savepoint is open. Not called before a reversal.
        """

    def require_free(self, step: Step) -> None:
        """In the savepoint, before a step or an undo, unless its call is DONE. An error fails the step."""

    def require_available(self, services: Sequence[str]) -> None:
        """In the savepoint, before the INTENT of a step that needs these. An error fails the step."""

    def passed(self, step: Step) -> None:
        """In the savepoint: a step or an undo has run without failing."""

    def after(self) -> None:
        """After each step, undo and lookup, and again after their savepoint, if there are `news`: their calls' results
        are known.
        """

    def find_parking(self, workflow: Workflow, error: BaseException) -> Parking | None:
        """What to park the workflow on after `error` of a step, an undo or a lookup; None not to park it.

        The savepoint is gone, nothing is decided. `end` may already have been called.
        """

    def park_instead(
        self, workflow: Workflow, step: str, error: BaseException, description: Mapping[str, str], *, judges: bool
    ) -> Parking | None:
        """What to park the workflow on instead of counting this failure against it; None for no objection.

        `step` may be the name of an undo; `description` is the error as it may be shown. `judges`: without an answer
        the workflow fails for good. Called at the same time as `find_parking`.
        """

    def crashed(self, workflow: Workflow, past: PastAttempt) -> RetryableStepError | None:
        """The workflow has crashed a worker, last in `past.died_in`. Return the error by which `find_parking` parks it
        before the next try; None to let poison judge it.

        Called before each attempt, even one that reverses, until an attempt is decided. No savepoint is open.
        """


class Feature:
    """What a feature brings to workers. A method that it does not override costs nothing."""

    # Maintenance tasks, by name.
    chores: ClassVar[Mapping[str, Task]] = {}

    def gate(self, definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Instead | None:
        """What to do instead of running `workflow`; None to run it. The first feature that answers decides.

        The claim holds the row lock, the attempt is open, without a savepoint. Read on the claim's connection; write
        only on the attempt log. Not called before a reversal. Raises ClaimLost and database errors.
        """

    def left_undone(self, workflow: Workflow, entry: Mapping[str, Any]) -> None:
        """A best-effort step has failed, and its workflow is about to be COMPLETE, in this transaction of the claim.

        `entry` is one of the attempt's steps; `follow_up` in it says that the failure may pass.
        """

    def told(self, workflow: Workflow, what: str) -> None:
        """The row has become `what`, one of `definition.LIFECYCLE`, in the open transaction of a claim or a person.

        No savepoint is open. "completed" is reported only if the definition publishes it, because otherwise the row is
        written with the COMMIT. Raises database errors.
        """

    def at_worker(self) -> Part | None:
        """The feature's part at one worker; None if it has none. Called once, when the worker starts."""
        return None

    def source(self, queue: str, reads: Sequence[str]) -> Source | None:
        """Work of this queue other than workflows, for one worker; None if there is none.

        Its claims carry the values of `reads`, the SQL of this worker's parts.
        """
        return None

    def onlooker(self) -> Onlooker | None:
        """The feature's onlooker at one worker; None if it has none. Called in the worker's process."""
        return None

    def after_commit(self, workflow: Workflow, outcome: Outcome | None) -> None:
        """The outcome is committed; no lock is held. `outcome` is None for a type that this release does not know.

        Raises database errors: the session is then replaced, and maintenance does what is left.
        """


def first(answers: Iterable[T | None]) -> T | None:
    """The answer of the first feature that has one; the others are not asked."""
    return next((each for each in answers if each), None)


class Hooks(NamedTuple):
    """The hooks of all features, for each point where the engine asks; collected once, when a worker starts."""

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
        """Call every feature's `told`. The code that makes the row `what` calls this, in the same transaction."""
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
