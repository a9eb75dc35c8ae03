"""What is marked `alone` has the server to itself: the others wait for it, and it for them."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import alone

ORDINARY, ALONE = (SimpleNamespace(get_closest_marker=lambda name, found=found: found) for found in (None, object()))


@pytest.fixture(autouse=True)
def lock_of_its_own(settings: Any, tmp_path: Path) -> None:
    settings.VAR_DIR = tmp_path / "var"


def waits(item: Any) -> tuple[threading.Thread, threading.Event]:
    """Let another thread take its turn, as another process would; the event says that it has it."""
    has_it = threading.Event()

    def take_it() -> None:
        with alone.turn_of(item):
            has_it.set()

    thread = threading.Thread(target=take_it, daemon=True)
    thread.start()
    assert not has_it.wait(0.2)
    return thread, has_it


@pytest.mark.parametrize(("first", "second"), [(ORDINARY, ALONE), (ALONE, ORDINARY), (ALONE, ALONE)])
def test_what_runs_alone_and_what_does_not_wait_for_each_other(first: Any, second: Any) -> None:
    with alone.turn_of(first):
        thread, has_it = waits(second)
    assert has_it.wait(10)
    thread.join(10)
