import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.kafka import Cluster, Consumekafka
from tests.processes import Runworker
from tests.sandbox_process import SandboxProcess
from tests.servers import Proxy
from workflows.ingress import api_keys


class Start(Protocol):
    def __call__(self, *definitions: str, arguments: tuple[str, ...] = (), **environ: str) -> Runworker: ...


class Consume(Protocol):
    def __call__(self, *arguments: str, **environ: str) -> Consumekafka: ...


@pytest.fixture
def started() -> Iterator[list[Runworker]]:
    """What the test has started: it is ended with the test."""
    started: list[Runworker] = []
    yield started
    for each in started:
        each.kill()


@pytest.fixture
def runworker(tmp_path: Path, started: list[Runworker]) -> Start:
    """Starts `manage.py runworker` for definitions (see `tests.processes.environment`)."""

    def start(*definitions: str, arguments: tuple[str, ...] = (), **environ: str) -> Runworker:
        started.append(Runworker(tmp_path / f"process-{len(started)}.log", definitions, arguments, **environ))
        return started[-1]

    return start


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    """A sandbox of the test's own, whose log is about nothing else."""
    sandbox = SandboxProcess(tmp_path / "sandbox")
    yield sandbox
    sandbox.kill()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as proxy:
        yield proxy


@pytest.fixture
def key() -> str:
    """An API key."""
    return api_keys.create("shop")


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
def consume(cluster: Cluster, topic: str, tmp_path: Path, started: list[Runworker]) -> Consume:
    """Starts `manage.py consumekafka` for the test's topic, in a group called like it."""

    def start(*arguments: str, **environ: str) -> Consumekafka:
        kafka = {"KAFKA_BROKERS": cluster.brokers, "KAFKA_TOPICS": topic, "KAFKA_GROUP": topic}
        environ = {**kafka, "KAFKA_OPTIONS": cluster.OPTIONS, **environ}
        consumer = Consumekafka(tmp_path / f"process-{len(started)}.log", (), arguments, **environ)
        started.append(consumer)
        return consumer

    return start
