"""Makes services unavailable, slow or limited in a test, at `call_to`, so that no client needs a mock."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from unittest.mock import patch

from workflows.errors import RetryableStepError
from workflows.features.outages.calls import Call, played

_calls: Counter[str] = Counter()  # that were played, by service


def unavailable(service: str, *, calls: int | None = None) -> AbstractContextManager[None]:
    """Make the service unavailable for the first so many calls (None: all). Nothing is sent."""
    return _play(service, lambda number: calls is None or number <= calls, _refuse)


def limited(service: str, *, calls: int) -> AbstractContextManager[None]:
    """Let the service take so many calls. It is unavailable for the others; nothing is sent."""
    return _play(service, lambda number: number > calls, _refuse)


def slow(service: str, *, seconds: float, calls: int | None = None) -> AbstractContextManager[None]:
    """Make the first so many calls (None: all) take so much longer, up to the step's timeout. The test waits."""
    return _play(service, lambda number: calls is None or number <= calls, lambda call: time.sleep(seconds))


def _refuse(call: Call) -> None:
    call.unavailable()
    raise RetryableStepError("Made unavailable.", code="made_unavailable")


@contextmanager
def _play(service: str, concerns: Callable[[int], bool], what: Callable[[Call], None]) -> Iterator[None]:
    """Do `what` before each call that `concerns` chooses by its number (from 1). The inner of two counts.

    Raises AssertionError if the service is not called: under that name there may be none.
    """
    numbers, before = count(1), _calls[service]

    def play(call: Call) -> None:
        _calls[service] += 1
        if concerns(next(numbers)):
            what(call)

    with patch.dict(played, {service: play}):
        yield
    assert _calls[service] > before, (
        f"No call to {service!r} was made: the test proves nothing. Its name is that of call_to(...)."
    )
