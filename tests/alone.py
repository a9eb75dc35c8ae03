"""Tests that are marked `alone` run while no other test does, however many processes pytest-xdist has started.

Each of those processes has a database of its own, but they share a server: what restarts it, or counts what all of its
databases do, would disturb the others, or be disturbed.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.db import connections

# When the last of them began, as far as this process knows: the time of the lock's file.
_last: list[int] = []


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


@contextmanager
def turn_of(item: pytest.Item) -> Iterator[None]:
    """Hold the lock that tests share, or that a test has alone, from the set-up of a test to the end of its clean-up.

    The tests that run alone come last (see tests/conftest.py), so none waits for long.
    """
    settings.VAR_DIR.mkdir(exist_ok=True)
    lock = os.open(settings.VAR_DIR / "tests.lock", os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if is_alone(item) else fcntl.LOCK_SH)
        if is_alone(item):
            os.utime(lock)
        if _last != (last := [os.fstat(lock).st_mtime_ns]):
            connections.close_all()  # it may have restarted the server, in another process than this
            _last[:] = last
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)  # closing it would not do: a process that the test has forked has it open, too
        os.close(lock)
