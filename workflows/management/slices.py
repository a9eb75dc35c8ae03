"""What commands share that process all rows in slices: they report progress, and can be stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TypeVar

from django.core.management.base import CommandError
from django.db import Error

from workflows.postgres import sqlstates

# Seconds between two progress lines.
SAY_EVERY = 5.0

P = TypeVar("P")


@contextmanager
def stoppable(go_on: Callable[[], str]) -> Iterator[None]:
    """Print how to go on after Ctrl-C, or a database failure."""
    try:
        yield
    except KeyboardInterrupt:
        raise CommandError(f"Stopped. {go_on()}", returncode=130) from None
    except Error as error:
        raise CommandError(f"The database failed: {sqlstates.loggable(error)}. {go_on()}") from None


def told(slices: Iterator[P], words: Callable[[P], str], say: Callable[[str], object]) -> Iterator[P]:
    """Pass the progress on, and print a progress line now and then."""
    said = monotonic()
    for progress in slices:
        yield progress
        if monotonic() - said >= SAY_EVERY:
            said = monotonic()
            say(words(progress))


def how_far(below: int, newest: int) -> str:
    """The progress in percent: of the workflows up to `newest`, those with the id `below` or higher are done."""
    return f"{100 * (newest + 1 - below) / max(1, newest):.0f} %, down to workflow {below:,}"
