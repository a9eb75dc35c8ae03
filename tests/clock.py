"""A clock that the test moves."""

import pytest


class Clock:
    """What a module's `monotonic` says. It stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def standing_still(monkeypatch: pytest.MonkeyPatch, *modules: str) -> Clock:
    """The one clock of these modules."""
    clock = Clock()
    for module in modules:
        monkeypatch.setattr(f"{module}.monotonic", clock)
    return clock
