"""A time limit on synchronous code: a timer of the process that raises in the main thread.

It reaches Python code, and SQL. Code that blocks in C without looking at signals is left to the supervisor.
"""

from __future__ import annotations

import signal
import threading
from _signal import getsignal as _getsignal  # type: ignore[import-not-found] # `signal.getsignal` makes 8 calls more
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from workflows.forks import call_in_this_process

T = TypeVar("T")

# An exception raised by a timer can be lost, in a __del__ or a C callback: it is raised again.
AGAIN_EVERY = 1.0

_MAIN = threading.main_thread().ident  # also in a fork, which the main thread makes
_held_off = False
# The limit of the current call; None when there is none, for a signal that comes late.
_seconds: float | None = None


class StepTimeout(KeyboardInterrupt):
    """A step took longer than its timeout. A KeyboardInterrupt for psycopg's sake, so `except Exception` misses it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"It took longer than its timeout of {seconds:g} s.")


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Call `function`; raise StepTimeout in its midst after `seconds`. Without a limit outside the main thread."""
    global _seconds
    if threading.get_ident() != _MAIN:
        return call_in_this_process(function)
    if _getsignal(signal.SIGALRM) is not _expire:
        signal.signal(signal.SIGALRM, _expire)
    _seconds = seconds
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_EVERY)
            return call_in_this_process(function)
        finally:
            _seconds = None
            signal.setitimer(signal.ITIMER_REAL, 0)
    except StepTimeout:
        # The exception may come between the function's return and the lines above: the timer would then raise it again,
        # outside this function.
        _seconds = None
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise


def _expire(number: int, frame: FrameType | None) -> None:
    """The handler of the timer's signal, installed once: installing it for each call takes longer than the timer."""
    if _seconds is not None and not _held_off:
        raise StepTimeout(_seconds)


@contextmanager
def held_off() -> Iterator[None]:
    """Raise no StepTimeout in here; it comes within AGAIN_EVERY after that.

    For a transaction of the engine's own within a step's time: an exception between two of its statements would leave
    the transaction open, and whatever is written next would be lost with it.
    """
    global _held_off
    _held_off = True
    try:
        yield
    finally:
        _held_off = False
