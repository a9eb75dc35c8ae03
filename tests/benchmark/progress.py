"""Progress bars on stderr: what is measured takes its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# Given what is done and how many times, starts a bar and returns what tells it how many there are so far.
Track = Callable[[str, int], Callable[[int], None]]


@contextmanager
def tracking() -> Iterator[Track]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def track(description: str, total: int) -> Callable[[int], None]:
            task = progress.add_task(description, total=total)
            return lambda completed: progress.update(task, completed=completed)

        yield track
