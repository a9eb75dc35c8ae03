"""A flag that a signal handler may set."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Flag:
    """Like `threading.Event`, for one thread and its signal handlers.

    `Event.set` takes a lock. Called by a handler that interrupts the same thread inside `wait` or `clear`, it waits for
    that thread, which is itself, for ever. `SimpleQueue.put` is made to be called from anywhere.
    """

    def __init__(self) -> None:
        self._set = False
        self._calls: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._set = True
        self._calls.put(None)

    def is_set(self) -> bool:
        return self._set

    def clear(self) -> None:
        self._set = False
        with suppress(Empty):
            while True:
                self._calls.get_nowait()

    def wait(self, seconds: float) -> bool:
        """Sleep until it is set, but `seconds` at most. Return whether it is set."""
        if not self._set:
            with suppress(Empty):
                self._calls.get(timeout=seconds)
        return self._set
