"""When a failed attempt is tried again: exponential back-off with jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from workflows.errors import RetryableStepError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A retry policy: `max_attempts` failures of one step in a row, delays in seconds, jitter as a share of the delay.

    None leaves the field to the next policy asked: the error's, then the step's, then the definition's.
    """

    max_attempts: int | None = None
    base_delay: float | None = None
    max_delay: float | None = None
    jitter_factor: float | None = None


# 2 s doubling to 300 s: ten attempts span about 17 minutes, longer than a deploy or a failover of a downstream.
MAX_ATTEMPTS = 10
BASE_DELAY = 2.0
MAX_DELAY = 300.0
JITTER_FACTOR = 0.2


def resolve(*policies: Retry | RetryableStepError | None) -> tuple[int, float, float, float]:
    """Merge policies, the first that states a field deciding it.

    Returns (max_attempts, base_delay, max_delay, jitter_factor), the defaults for what none states.
    """
    stated = [policy for policy in policies if policy is not None]
    return (
        next((p.max_attempts for p in stated if p.max_attempts is not None), MAX_ATTEMPTS),
        next((p.base_delay for p in stated if p.base_delay is not None), BASE_DELAY),
        next((p.max_delay for p in stated if p.max_delay is not None), MAX_DELAY),
        next((p.jitter_factor for p in stated if p.jitter_factor is not None), JITTER_FACTOR),
    )


def delay_seconds(failures: int, *, base_delay: float, max_delay: float, jitter_factor: float) -> float:
    """Seconds to wait after the `failures`-th failure in a row (1 for the first): base, 2 base, 4 base, ... max.

    Jitter is added on both sides and after the cap, so that a thousand workflows that failed in one outage do not
    come back in the same moment.
    """
    # 2 ** 63 is past any cap that makes sense; without the bound a long poll overflows a float at 1,024 failures.
    delay = min(base_delay * 2.0 ** min(failures - 1, 63), max_delay)
    return delay * (1 + random.uniform(-jitter_factor, jitter_factor))  # noqa: S311 (no secret depends on it)


def calculate_invisible_until(
    retry_count: int, *, base_delay: float, max_delay: float, jitter_factor: float, now: datetime
) -> datetime:
    """Return when a workflow with `retry_count` failures in a row (1 or more) is due again.

    `now` is the database's clock at the moment of the decision (`clock_timestamp()`), never the worker's.
    """
    seconds = delay_seconds(retry_count, base_delay=base_delay, max_delay=max_delay, jitter_factor=jitter_factor)
    return now + timedelta(seconds=seconds)
