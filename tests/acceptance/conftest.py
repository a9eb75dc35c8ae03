import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.kafka import Cluster, Consumekafka
from tests.processes import Runworker


class Start(Protocol):
    def __call__(self, *definitions: str, arguments: tuple[str, ...] = (), **environ: str) -> Runworker: ...


class Consume(Protocol):
    def __call__(self, *arguments: str, **environ: str) -> Consumekafka: ...


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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A topic of the test's own, of one partition."""
    name = f"facts-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name)
    return name


@pytest.fixture
def consume(cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Consume]:
    """Starts `manage.py consumekafka` for the test's topic, in a group called like it; ends all it has started."""
    started: list[Consumekafka] = []

    def start(*arguments: str, **environ: str) -> Consumekafka:
        kafka = {"KAFKA_BROKERS": cluster.brokers, "KAFKA_TOPICS": topic, "KAFKA_GROUP": topic}
        environ = {**kafka, "KAFKA_OPTIONS": cluster.OPTIONS, **environ}
        started.append(Consumekafka(tmp_path / f"consumekafka-{len(started)}.log", (), arguments, **environ))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill()
