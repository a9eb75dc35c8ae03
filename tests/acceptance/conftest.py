from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.processes import Runworker


class Start(Protocol):
    def __call__(self, *definitions: str, arguments: tuple[str, ...] = (), **environ: str) -> Runworker: ...


@pytest.fixture
def runworker(tmp_path: Path) -> Iterator[Start]:
    """Starts `manage.py runworker` for definitions (see `tests.processes.environment`); ends all it has started."""
    started: list[Runworker] = []

    def start(*definitions: str, arguments: tuple[str, ...] = (), **environ: str) -> Runworker:
        log = tmp_path / f"runworker-{len(started)}.log"
        started.append(Runworker(log, definitions, arguments, **environ))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill()


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    """The file to which the steps add a line for each thing they do."""
    log = tmp_path / "effects"
    log.touch()
    return log
