"""SILENCE: when the database last gave this process no answer. Its older sessions are as silent, each on its own."""

from time import monotonic

_last = float("-inf")


def note() -> None:
    """Let each session that is open now be replaced before its next use."""
    global _last
    _last = monotonic()


def is_since(moment: float) -> bool:
    """Whether the database was silent after that monotonic time."""
    return moment <= _last
