"""PostgreSQL crashes and comes back under load. Everybody comes back by themselves; nothing is lost, nothing FAILED."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest
from django.db import connections

from tests.acceptance.conftest import Start
from tests.acceptance.outside import done
from tests.postgres import Restart
from tests.processes import until
from tests.servers import gunicorn
from workflows.ingress import api_keys
from workflows.models import Attempt, Event, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

RESTARTS = 4
LOAD = 400
LOADED = Workflow.objects.filter(workflow_type="loaded")


class Sender(Thread):
    """Sends one submission after the other, each again with the same key until it is accepted."""

    def __init__(self, port: int, api_key: str) -> None:
        super().__init__()
        self.port = port
        self.api_key = api_key
        self.accepted: list[uuid.UUID] = []
        self.answers: Counter[int] = Counter()
        self.stopping = Flag()

    def run(self) -> None:
        while not self.stopping.is_set():
            key = uuid.uuid4()
            while self.send(key) != 202:
                time.sleep(0.05)
            self.accepted.append(key)

    def send(self, key: uuid.UUID) -> int:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as http, suppress(OSError, HTTPException):
            headers = {"Authorization": f"Bearer {self.api_key}", "Idempotency-Key": str(key)}
            http.request("POST", "/v1/submissions", "{}", {**headers, "Content-Type": "application/json"})
            self.answers[status := http.getresponse().status] += 1
            return status
        return 0


def load(effects: Path) -> None:
    """More than the workers can do before the next crash."""
    payload = {"log": str(effects)}
    Workflow.objects.bulk_create(
        Workflow(workflow_type="loaded", idempotency_key=uuid.uuid4(), payload=payload) for _ in range(LOAD)
    )


def more_than(count: int) -> bool:
    return LOADED.filter(status="COMPLETE").count() > count


@pytest.mark.alone
def test_workers_and_intake_outlive_crashes_of_the_database(
    runworker: Start, effects: Path, tmp_path: Path, restart_postgres: Restart
) -> None:
    load(effects)
    workers = [runworker("LOADED", arguments=("--processes", "2")) for _ in range(2)]

    def output() -> str:
        return "".join(worker.output for worker in workers)

    with gunicorn("config.intake", tmp_path) as intake:
        sender = Sender(intake.port, api_keys.create("shop"))
        sender.start()
        try:
            until(partial(more_than, 0), what=output)
            for _ in range(RESTARTS):
                load(effects)
                time.sleep(random.uniform(0.2, 0.8))
                while LOADED.filter(status="PENDING").count() < LOAD:  # they are quick
                    load(effects)
                connections.close_all()
                restart_postgres()
                before = LOADED.filter(status="COMPLETE").count()
                sent = len(sender.accepted)
                until(partial(more_than, before), what=output)
                until(lambda sent=sent: len(sender.accepted) > sent, what=intake.printed)
            # What was lost twice in a row is tried again after a minute, and then after two.
            until(lambda: not LOADED.filter(status="PENDING").exists(), seconds=300, what=output)
        finally:
            sender.stopping.set()
            sender.join(40)

    assert set(LOADED.values_list("status", "retry_count")) == {("COMPLETE", 0)}
    assert set(done(effects, "note")) == set(LOADED.values_list("pk", flat=True))
    ended = Attempt.objects.filter(workflow__in=LOADED)
    told = set(ended.values_list("outcome", flat=True))
    assert {"complete", "lost"} <= told <= {"complete", "lost", "vanished", "put_back"}, "nobody is condemned"
    assert ended.filter(outcome="complete").count() == LOADED.count() >= LOAD * (RESTARTS + 1)
    assert Event.objects.filter(kind="completed").count() == LOADED.count()
    assert [len(worker.children()) for worker in workers] == [2, 2]
    assert "ended by" not in output(), "the same processes"
    assert "engine itself" not in output()

    stored = Workflow.objects.exclude(workflow_type="loaded").values_list("idempotency_key", flat=True)
    assert set(sender.accepted) <= set(stored), "accepted is kept"
    assert len(set(stored) - set(sender.accepted)) <= 1, "the last one may have been on its way"
    assert set(sender.answers) <= {202, 503}
