"""What commands have in common that go through all rows in slices: they say how far they are, and may be stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

from django.core.management.base import CommandError
from django.db import Error

from workflows.postgres import sqlstates

# Seconds between two lines that say how far it is.
SAY_EVERY = 5.0

P = TypeVar("P")


@contextmanager
def stoppable(go_on: Callable[[], str]) -> Iterator[None]:
    """Say how to go on after Ctrl-C, or a failure of the database."""
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError(f"Stopped. {go_on()}", returncode=130) from None
    except Error as error:
        raise CommandError(f"The database failed: {sqlstates.loggable(error)}. {go_on()}") from None


def told(slices: Iterator[P], words: Callable[[P], str], say: Callable[[str], object]) -> Iterator[P]:
    """The same progress, with a line now and then that reports it."""
    said = monotonic()
    for progress in slices:
        yield progress
        if monotonic() - said >= SAY_EVERY:
            said = monotonic()
            say(words(progress))


def how_far(below: int, newest: int) -> str:
    """How much is done of the workflows up to `newest`, when those of the number `below` and above are."""
    return f"{100 * (newest + 1 - below) / max(1, newest):.0f} %, down to workflow {below:,}"
