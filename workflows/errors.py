"""The errors that a step may raise. The class decides what the engine does next (docs/how-steps-run.md).

Messages are for support staff and must not contain what a person typed; the engine masks them as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import isnan
from typing import Any

# Error codes of a duplicate: the same business again, or a later workflow with the same key and different content.
DUPLICATE, DIFFERS = "duplicate_of", "duplicate_differs"
DUPLICATES = (DUPLICATE, DIFFERS)


class StepError(Exception):
    """The workflow cannot go on: it becomes FAILED.

    `code` is a stable word for the kind of failure ("card_declined"); the console groups and explains failures by it.
    `answers_key`: the service has checked the call's idempotency key. Only then does an error on a repeat show that the
    first call did not happen either.
    """

    # For an error class of a step that does not call this __init__.
    code = ""
    answers_key = False

    def __init__(self, message: str = "", *, code: str = "", answers_key: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.answers_key = answers_key


class PublishError(StepError):
    """An event cannot be published as requested (`workflows.outbox`).

    In a `once` step the error does not show whether the step had already made its call.
    """


class RetryableStepError(StepError):
    """The error may pass with time: roll back, keep the lock, and start again from step 1 after a delay.

    `base_delay` and `max_delay` are seconds (or timedeltas). `jitter_factor` is a share of the delay (0.2 is plus or
    minus 20%). After `max_attempts` failures of one step in a row the workflow is FAILED; failures at an unavailable
    service are counted apart, and more are allowed (`engine.retry_budget`). The step's policy decides what is left
    out, then the definition's. A signal named in `wake_on` that this attempt has not seen ends the delay
    early. Raises TypeError or ValueError, naming the argument, for a value that is not a number or not a name.
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
        self.wake_on = signal_names(wake_on)
        self.base_delay = policy_number("base_delay", base_delay)
        self.max_delay = policy_number("max_delay", max_delay)
        self.jitter_factor = policy_number("jitter_factor", jitter_factor)
        self.max_attempts = policy_number("max_attempts", max_attempts)


class UnknownOutcome(RetryableStepError):
    """The call was sent and may have happened. It is tried again; its idempotency key makes a second call harmless."""


class ServiceUnavailable(RetryableStepError):
    """The call was not made: its service is known to be unavailable (`workflows.outages`).

    `needed`: the step did not start, because it needs a service that it does not call itself.
    """

    CODE = "service_unavailable"
    needed = False


class ServiceBusy(ServiceUnavailable):
    """The call was not made: its service already has as many calls as people allow (`features.outages.places`)."""

    CODE = "service_busy"


class Braked(ServiceUnavailable):
    """Many workflows fail at this step for an unexplained reason, so this one is parked (`features.brake`)."""

    CODE = "braked"


class LetFail(StepError):
    """A person has let all workflows fail that were parked on a cause. The engine raises this, before any step."""

    def __init__(self, *, by: str, reason: str, cause: str) -> None:
        super().__init__(f"Many failed at {cause}, and {by} has let this fail: {reason}", code="let_fail")


class WorkflowCancelled(StepError):
    """A person has asked to cancel the workflow. Only the engine raises this, between steps."""

    BY = "Cancelled by "

    def __init__(self, *, by: str, reason: str) -> None:
        super().__init__(f"{self.BY}{by}: {reason}" if reason else f"{self.BY}{by}.", code="cancelled")
        self.by = by
        self.reason = reason


class WorkflowExpired(StepError):
    """The workflow has taken longer than `expires_after`. Only the engine raises this, between steps."""

    def __init__(self) -> None:
        super().__init__("It was not done in the time that it may take.", code="expired")


class Suspend(BaseException):
    """Raised by the waits (`workflows.waits`): the workflow cannot go on before the event that it waits for.

    It is a BaseException, so that `except Exception` in a step does not catch it. A signal whose name is in `wake_on`
    wakes the workflow if the signal's payload has the fields `matching` with these values.
    """

    def __init__(
        self, waiting_for: str, *, wake_on: Sequence[str], until: datetime, matching: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(waiting_for)
        self.waiting_for = waiting_for
        self.wake_on = list(wake_on)
        self.until = until
        self.matching = dict(matching or {})


class ClaimLost(BaseException):
    """This worker may have lost the row: it stops, and writes no decision. Steps never raise this."""


class NotAllowed(Exception):
    """The workflow's state, or a rule, forbids the operation. The message is for the user."""


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, its causes and contexts, and the members of groups; each once."""
    met: set[int] = set()
    ahead = [error]
    while ahead:
        each = ahead.pop()
        if each is not None and id(each) not in met:  # `raise error from error` makes a loop
            met.add(id(each))
            yield each
            ahead += [each.__context__, each.__cause__]
            ahead += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


_MARK = "unavailable_service"


def mark_unavailable(error: BaseException, service: str) -> None:
    """Mark the error with the service, or the cause, because of which the step failed."""
    setattr(error, _MARK, service)


def unavailable_service(error: BaseException | None) -> str:
    """The unavailable service with which the error, or one in its chain, is marked; empty if there is none."""
    for each in error_chain(error):
        if name := getattr(each, _MARK, ""):
            return str(name)
    return ""


def is_busy(error: BaseException | None) -> bool:
    """Whether a call was not made because its service has as many calls as it may."""
    return any(isinstance(each, ServiceBusy) for each in error_chain(error))


def is_braked(error: BaseException | None) -> bool:
    """Whether many fail at the step, for a cause that it names as its unavailable service."""
    return any(isinstance(each, Braked) for each in error_chain(error))


# More than any policy needs. A much larger number fits neither in a float nor in a row.
_MOST = 10**9


def policy_number(field: str, value: object) -> Any:
    """The value of a retry policy's `field` as a number; delays in seconds. None leaves it to the next policy.

    Raises TypeError or ValueError for a value from which no delay can be computed.
    """
    if field in ("base_delay", "max_delay") and isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None:
        return None
    if field == "max_attempts" and not isinstance(value, int):
        raise TypeError(f"{field} is a whole number, and not of type {type(value).__name__}.")
    if not isinstance(value, int | float):
        raise TypeError(f"{field} is a number, and not of type {type(value).__name__}.")
    if isnan(stated := min(value, _MOST)):
        raise ValueError(f"{field} is a number, and not NaN.")
    return stated


def signal_names(wake_on: object) -> list[str]:
    """The names in `wake_on`: one name, or several. Raises TypeError for a value that is not a name."""
    if isinstance(wake_on, str):
        return [wake_on]
    names: list[Any] = list(wake_on) if isinstance(wake_on, Iterable) else [wake_on]
    if wrong := [type(name).__name__ for name in names if not isinstance(name, str)]:
        raise TypeError(f"wake_on holds names of signals, and nothing of type {wrong[0]}.")
    return names
