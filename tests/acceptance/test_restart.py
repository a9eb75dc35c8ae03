"""PostgreSQL crashes and comes back under load. Workers come back by themselves; nothing is lost, nothing FAILED."""

import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connections

from tests.acceptance.conftest import Start
from tests.acceptance.outside import done
from tests.processes import until
from workflows.models import Attempt, Event, Workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

RESTARTS = 4


def test_workers_outlive_restarts_of_the_database(
    runworker: Start, effects: Path, restart_postgres: Callable[[], None]
) -> None:
    payload = {"log": str(effects)}
    Workflow.objects.bulk_create(
        Workflow(workflow_type="loaded", idempotency_key=uuid.uuid4(), payload=payload) for _ in range(600)
    )
    workers = [runworker("LOADED", arguments=("--processes", "2")) for _ in range(2)]
    until(lambda: Workflow.objects.filter(status="COMPLETE").exists(), what=lambda: workers[0].output)
    for _ in range(RESTARTS):
        before = Workflow.objects.filter(status="COMPLETE").count()
        time.sleep(random.uniform(0.2, 0.8))
        connections.close_all()
        restart_postgres()
        until(
            lambda: Workflow.objects.filter(status="COMPLETE").count() > before,
            what=lambda: "".join(worker.output for worker in workers),
        )
        assert Workflow.objects.filter(status="PENDING").exists(), "there was load all the while"
    until(
        lambda: not Workflow.objects.filter(status="PENDING").exists(),
        seconds=90,
        what=lambda: "".join(worker.output for worker in workers),
    )
    assert set(Workflow.objects.values_list("status", "retry_count")) == {("COMPLETE", 0)}
    assert Workflow.objects.count() == 600
    assert set(done(effects, "note")) == set(Workflow.objects.values_list("pk", flat=True))
    ended = set(Attempt.objects.values_list("outcome", flat=True))
    assert {"complete", "lost"} <= ended <= {"complete", "lost", "vanished"}, "and some were hit in mid-attempt"
    assert Event.objects.filter(kind="completed").count() == 600
    assert Attempt.objects.filter(outcome="complete").count() == 600
    assert [len(worker.children()) for worker in workers] == [2, 2], "the same processes"
    assert not any("ended by" in worker.output or "engine itself" in worker.output for worker in workers)
