"""What a step may raise. The class says what the engine does next (docs/writing-workflows.md).

Messages are for support staff and never hold what a person typed; the engine masks them nevertheless.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import isnan
from typing import Any

# The codes of a workflow that was a duplicate: the same again, or one that came later, and differs.
DUPLICATE, DIFFERS = "duplicate_of", "duplicate_differs"
DUPLICATES = (DUPLICATE, DIFFERS)


class StepError(Exception):
    """The workflow cannot go on: it becomes FAILED.

    `code` is a stable word for the kind of failure ("card_declined"), by which the console groups and explains it.
    `answers_key`: the service has looked the call's idempotency key up, and answers for it. Only then does the error of
    a repeat say that the first call did not happen either.
    """

    # For a step's own error class that does not call our __init__.
    code = ""
    answers_key = False

    def __init__(self, message: str = "", *, code: str = "", answers_key: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.answers_key = answers_key


class PublishError(StepError):
    """An event cannot be published as requested (`workflows.outbox`).

    In a `once` step it does not say whether the step's call was made before it.
    """


class RetryableStepError(StepError):
    """The error may pass with time: roll back, keep the lock, try again from step 1 after a delay.

    `base_delay` and `max_delay` are seconds (or timedeltas), `jitter_factor` a share of the delay (0.2 is plus or minus
    20 %), `max_attempts` how many failures of one step in a row make it FAILED. What is left out is decided by the
    step's policy, then by the definition's. A signal named in `wake_on` that this attempt has not seen cuts the delay
    short. Raises TypeError or ValueError, naming the argument, for a value that is not a number or no name.
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
    """The call was sent and may have happened. It is tried again; its idempotency key makes the second one harmless."""


class ServiceUnavailable(RetryableStepError):
    """The call was not made: its service is known to be unavailable (`workflows.outages`).

    `needed`: the step needs the service, and does not call it itself; the step was not started.
    """

    CODE = "service_unavailable"
    needed = False


class ServiceBusy(ServiceUnavailable):
    """The call was not made: as many calls to its service are under way as people let (`features.outages.places`)."""

    CODE = "service_busy"


class Braked(ServiceUnavailable):
    """Many workflows fail at this step for a reason that nobody explains, so this one is parked (`features.brake`)."""

    CODE = "braked"


class LetFail(StepError):
    """People have let it fail, with all that waited for a cause. Raised by the engine, before any step."""

    def __init__(self, *, by: str, reason: str, cause: str) -> None:
        super().__init__(f"Many failed at {cause}, and {by} has let this fail: {reason}", code="let_fail")


class WorkflowCancelled(StepError):
    """A person has asked for the workflow to be cancelled. Raised by the engine only, between steps."""

    BY = "Cancelled by "

    def __init__(self, *, by: str, reason: str) -> None:
        super().__init__(f"{self.BY}{by}: {reason}" if reason else f"{self.BY}{by}.", code="cancelled")
        self.by = by
        self.reason = reason


class WorkflowExpired(StepError):
    """The workflow did not finish in time (`expires_after`). Raised by the engine, between steps."""

    def __init__(self) -> None:
        super().__init__("It was not done in the time that it may take.", code="expired")


class Suspend(BaseException):
    """Raised by the waits (`workflows.waits`): the workflow cannot go on before the event that it waits for.

    A BaseException, so that a step's own `except Exception` does not swallow it. A signal of a name in `wake_on` wakes
    the workflow if its payload has the fields `matching` with these values.
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
    """This worker may have lost the row: it stops, decides nothing and writes nothing. Steps never raise this."""


class NotAllowed(Exception):
    """The workflow's state, or a rule, does not allow the operation. The message is for the user."""


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error, each error that it was raised from or while handling, and the members of groups, each once."""
    met: set[int] = set()
    ahead = [error]
    while ahead:
        each = ahead.pop()
        if each is not None and id(each) not in met:  # `raise error from error` is a ring
            met.add(id(each))
            yield each
            ahead += [each.__context__, each.__cause__]
            ahead += each.exceptions if isinstance(each, BaseExceptionGroup) else ()


_MARK = "unavailable_service"


def mark_unavailable(error: BaseException, service: str) -> None:
    """Say of an error by which service, or for which cause, the step failed."""
    setattr(error, _MARK, service)


def unavailable_service(error: BaseException | None) -> str:
    """The unavailable service by which the step failed: of the error, or of one in its chain; empty if none."""
    for each in error_chain(error):
        if name := getattr(each, _MARK, ""):
            return str(name)
    return ""


def is_busy(error: BaseException | None) -> bool:
    """Whether a call was not made because its service has as many as it may have."""
    return any(isinstance(each, ServiceBusy) for each in error_chain(error))


def is_braked(error: BaseException | None) -> bool:
    """Whether many fail at the step, for a cause that it names as its unavailable service."""
    return any(isinstance(each, Braked) for each in error_chain(error))


# More than any policy needs. A much larger number fits neither a float nor a row.
_MOST = 10**9


def policy_number(field: str, value: object) -> Any:
    """The value of a retry policy's `field` as a number: delays in seconds. None leaves it to the next policy.

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
