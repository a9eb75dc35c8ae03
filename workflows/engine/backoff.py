"""When a failed attempt is tried again: exponential back-off with jitter."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models.expressions import CombinedExpression

from workflows.definition import Retry
from workflows.errors import RetryableStepError, policy_number
from workflows.models.clock import ClockTimestamp


class Policy(NamedTuple):
    max_attempts: int
    base_delay: float
    max_delay: float
    jitter_factor: float

    def due_after(self, failures: int) -> CombinedExpression:
        """When a workflow with this many failures in a row (1 or more) is due again, by the database's clock.

        The result is SQL, because a worker's clock may be wrong. `now()` will not do: it is the start of the
        transaction, so after 3 s of steps a 2 s back-off would already be over.
        """
        _, base_delay, max_delay, jitter_factor = self
        seconds = delay_seconds(failures, base_delay=base_delay, max_delay=max_delay, jitter_factor=jitter_factor)
        return ClockTimestamp() + timedelta(seconds=seconds)


# 2 s doubling to 300 s: ten attempts span about 13.5 minutes, longer than a deploy or a failover of a downstream.
DEFAULT = Policy(max_attempts=10, base_delay=2.0, max_delay=300.0, jitter_factor=0.2)

# Seconds: a year, longer than any sensible delay. The database cannot store a time that is much later.
LONGEST = 365 * 86_400.0


def merge_policies(*stated: RetryableStepError | Retry | None) -> Policy:
    """Merge policies: each field from the first that sets it, or from `DEFAULT`."""
    return Policy(*(_first(field, stated) for field in Policy._fields))


def _first(field: str, policies: Sequence[RetryableStepError | Retry | None]) -> Any:
    """The first number that a policy states. Other values are skipped: a step's own error class may hold anything."""
    for policy in policies:
        with suppress(Exception):
            if (value := policy_number(field, getattr(policy, field, None))) is not None:
                return value
    return getattr(DEFAULT, field)


def delay_seconds(failures: int, *, base_delay: float, max_delay: float, jitter_factor: float) -> float:
    """Seconds to wait after the `failures`-th failure in a row (1 for the first): base, 2 base, 4 base, ... max.

    Jitter is added in both directions after the cap, so that a thousand workflows that failed in one outage do not
    return at the same moment.
    """
    # 2 ** 63 is past any sensible cap; without the bound, 1,024 failures of a long poll would overflow a float.
    delay = min(base_delay * 2.0 ** min(failures - 1, 63), max_delay)
    delay *= 1 + random.uniform(-jitter_factor, jitter_factor)  # noqa: S311 (no secret depends on it)
    return min(max(0.0, delay), LONGEST)  # in this order a NaN is 0


class Delay:
    """Seconds to sleep: doubling from `first` to `longest`, each plus or minus 20% so that workers spread out."""

    def __init__(self, first: float, longest: float) -> None:
        self.first, self.longest = first, longest
        self.reset()

    def reset(self) -> None:
        self.seconds = self.first

    def next(self) -> float:
        seconds, self.seconds = self.seconds, min(self.seconds * 2, self.longest)
        return seconds * random.uniform(0.8, 1.2)  # noqa: S311 (no secret depends on it)
