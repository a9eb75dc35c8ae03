"""A flag that a signal handler may set."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from queue import Empty, SimpleQueue


class Flag:
    """Like `threading.Event`, for one thread and its signal handlers.

    `Event.set` takes a lock: a handler that interrupts its own thread inside `wait` or `clear` would wait for itself,
    for ever. `SimpleQueue.put` is made to be called from anywhere.
    """

    def __init__(self) -> None:
        self._set = False
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._pipe: tuple[int, int] | None = None

    def set(self) -> None:
        self._set = True
        self._calls.put(None)
        if self._pipe:
            with suppress(BlockingIOError):  # it is full, so it can be read
                os.write(self._pipe[1], b"x")

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

    def wait_or_readable(self, seconds: float, file: int) -> bool:
        """Sleep until it is set, or `file` (a file descriptor) can be read; `seconds` at most. Whether `file` can be.

        Only for a flag that is not cleared again.
        """
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
        if self._set:  # perhaps before there was a pipe
            return False
        both = select.poll()
        both.register(file, select.POLLIN)
        both.register(self._pipe[0], select.POLLIN)
        return any(readable == file for readable, _ in both.poll(seconds * 1000))
