"""What a step may raise. The class is the decision: it says what the engine does next (docs/writing-workflows.md).

Messages are written for support staff and never hold what a person typed: the engine scrubs them all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta


class StepError(Exception):
    """The workflow cannot go on: it becomes FAILED.

    `code` is a stable word for the kind of failure ("card_declined"), by which the console groups and explains it.
    `answers_key`: the service has looked the call's idempotency key up, and this is its answer to that very key. Only
    then does the error of a repeat say that the first call did not happen either.
    """

    # What holds for a class of a step's own that does not call our __init__.
    code = ""
    answers_key = False

    def __init__(self, message: str = "", *, code: str = "", answers_key: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.answers_key = answers_key


class RetryableStepError(StepError):
    """Nothing is wrong that time cannot mend: roll back, keep the lock, try again from step 1 after a delay.

    `base_delay` and `max_delay` are seconds (or timedeltas), `jitter_factor` a share of the delay (0.2 is plus or
    minus 20 %), `max_attempts` how many failures of one step in a row make it FAILED. What is left out is decided by
    the step's policy, then by the definition's. A signal of one of the names `wake_on` that this attempt has not seen
    cuts the delay short.
    """

    wake_on: Sequence[str] = ()
    base_delay: float | None = None
    max_delay: float | None = None
    jitter_factor: float | None = None
    max_attempts: int | None = None

    def __init__(
        self,
        message: str = "",
        *,
        base_delay: float | timedelta | None = None,
        max_delay: float | timedelta | None = None,
        jitter_factor: float | None = None,
        max_attempts: int | None = None,
        wake_on: str | Sequence[str] = (),
        code: str = "",
        answers_key: bool = False,
    ) -> None:
        super().__init__(message, code=code, answers_key=answers_key)
        self.wake_on = [wake_on] if isinstance(wake_on, str) else list(wake_on)
        self.base_delay = _seconds(base_delay)
        self.max_delay = _seconds(max_delay)
        self.jitter_factor = jitter_factor
        self.max_attempts = max_attempts


class UnknownOutcome(RetryableStepError):
    """The call was sent and its answer never came: it may or may not have happened.

    Tried again like any `RetryableStepError`; the call's idempotency key makes the second one harmless.
    """


class WorkflowCancelled(StepError):
    """A person has asked for the workflow to be cancelled. Raised by the engine only, between steps."""

    def __init__(self, *, by: str, reason: str) -> None:
        super().__init__(f"Cancelled by {by}." if not reason else f"Cancelled by {by}: {reason}", code="cancelled")
        self.by = by
        self.reason = reason


class WorkflowExpired(StepError):
    """The workflow was not at rest when it should have been (`expires_after`). Raised by the engine, between steps."""

    def __init__(self) -> None:
        super().__init__("It was not done in the time that it may take.", code="expired")


class Suspend(BaseException):
    """Raised by the waits (`workflows.waits`): nothing more can happen before what the workflow waits for.

    A BaseException, so that a step's own `except Exception` does not swallow it. `seen` are signals of the names
    `wake_on` that are there already, and wake it no more.
    """

    def __init__(self, waiting_for: str, *, wake_on: Sequence[str], until: datetime, seen: Sequence[int] = ()) -> None:
        super().__init__(waiting_for)
        self.waiting_for = waiting_for
        self.wake_on = list(wake_on)
        self.until = until
        self.seen = list(seen)


class ClaimLost(BaseException):
    """The row is no longer ours, or we cannot know: stop, decide nothing, write nothing. Never raised by steps."""


class NotAllowed(Exception):
    """An operation that the workflow's state, or the rules, refuse. The message is for the person who asked."""


def all_of(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and each that it was raised for (`from`), or in the handling of, or is a group of. Each once."""
    met: set[int] = set()
    ahead = [error]
    while ahead:
        each = ahead.pop()
        if each is not None and id(each) not in met:  # `raise error from error` is a ring
            met.add(id(each))
            yield each
            ahead += [each.__context__, each.__cause__]
            ahead += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


def _seconds(delay: float | timedelta | None) -> float | None:
    return delay.total_seconds() if isinstance(delay, timedelta) else delay
