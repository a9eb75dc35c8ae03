"""Services that are down, slow or limited, for a test: at the seam (`call_to`), so that no client needs a mock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from unittest.mock import patch

from workflows.errors import RetryableStepError
from workflows.features.outages.calls import Call, played


def unavailable(service: str, *, calls: int | None = None) -> AbstractContextManager[None]:
    """The first so many calls to the service (None: all of them) meet it unavailable, and nothing is sent."""
    return _play(service, lambda number: calls is None or number <= calls, _refuse)


def limited(service: str, *, calls: int) -> AbstractContextManager[None]:
    """The service takes so many calls; those beyond meet it unavailable, and nothing is sent."""
    return _play(service, lambda number: number > calls, _refuse)


def slow(service: str, *, seconds: float, calls: int | None = None) -> AbstractContextManager[None]:
    """The first so many calls (None: all of them) take so much longer, up to the step's timeout: the test waits."""
    return _play(service, lambda number: calls is None or number <= calls, lambda call: time.sleep(seconds))


def _refuse(call: Call) -> None:
    call.unavailable()
    raise RetryableStepError("Made unavailable.", code="made_unavailable")


@contextmanager
def _play(service: str, concerns: Callable[[int], bool], what: Callable[[Call], None]) -> Iterator[None]:
    """Do `what` before each call that `concerns` chooses by its number (from 1). Of two, the inner one counts."""
    numbers = count(1)

    def play(call: Call) -> None:
        if concerns(next(numbers)):
            what(call)

    with patch.dict(played, {service: play}):
        yield
