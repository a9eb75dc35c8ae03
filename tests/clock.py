"""A clock that the test moves."""


class Clock:
    """What a module's `monotonic` says. It stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
