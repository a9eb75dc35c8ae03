"""The database's trouble is not a workflow's fault: real workers, under load, and nothing is FAILED or counted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection, connections
from django.db.models.functions import Now

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import done
from tests.processes import Runworker, until
from workflows.models import Attempt, Event, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

# Before the trouble, and so many again in its midst: however fast the machine is, there is load.
LOAD = 100
TABLE = "workflows_attempt"  # of the others: tests/workflows/engine/test_refusals.py


@pytest.fixture
def workers(runworker: Start, effects: Path) -> Runworker:
    """Two processes at work."""
    load(effects)
    worker = runworker("WAITS", arguments=("--processes", "2"))
    until(lambda: Workflow.objects.filter(status="COMPLETE").exists(), what=lambda: worker.output)
    return worker


def load(effects: Path) -> None:
    """Each waits for a moment."""
    payload = {"log": str(effects), "wait": "time", "seconds": 0}
    Workflow.objects.bulk_create(
        Workflow(workflow_type="waits", idempotency_key=uuid.uuid4(), payload=payload) for _ in range(LOAD)
    )


def assert_nothing_was_charged(worker: Runworker, effects: Path) -> None:
    """When the trouble is over, all of them complete, at the first attempt that was not lost."""

    def all_complete() -> bool:
        # Those that were lost twice would be tried in a minute.
        Workflow.objects.filter(status="PENDING", invisible_until__gt=Now()).update(invisible_until=Now())
        return not Workflow.objects.filter(status="PENDING").exists()

    until(all_complete, seconds=120, what=lambda: worker.output)
    assert set(Workflow.objects.values_list("status", "retry_count")) == {("COMPLETE", 0)}
    assert len(set(done(effects, "end"))) == 2 * LOAD
    assert set(Event.objects.values_list("kind", flat=True)) <= {"completed", "lost", "put_back", "vanished"}
    assert Attempt.objects.filter(outcome="complete").count() == 2 * LOAD
    assert "engine itself" not in worker.output
    assert len(worker.children()) == 2


@pytest.fixture(autouse=True)
def drop_what_was_ahead(transactional_db: None) -> Iterator[None]:
    """When the workers have ended, for they run on after the trouble."""
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} DROP COLUMN IF EXISTS ahead")


def test_a_column_that_the_workers_do_not_know_fails_nothing(workers: Runworker, effects: Path) -> None:
    with engine.a_column_ahead(TABLE, drop=False):
        load(effects)
        until(lambda: workers.output.count(f"NotNullViolation 23502 ({TABLE}.ahead)") > 3, what=lambda: workers.output)
        assert Workflow.objects.filter(status="PENDING").exists(), "there was load"
        assert not Workflow.objects.filter(status="FAILED").exists()
    assert_nothing_was_charged(workers, effects)


def test_a_failover_to_a_server_that_is_read_only_for_a_while_fails_nothing(workers: Runworker, effects: Path) -> None:
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with engine.another_connection() as other:
        try:
            other.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            other.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE application_name LIKE 'onramp %' AND datname = current_database()"
            )
            load(effects)  # this session can: it is from before
            until(lambda: workers.output.count("the server is read-only") > 3, what=lambda: workers.output)
            time.sleep(1)
            assert Workflow.objects.filter(status="PENDING").exists(), "there was load"
        finally:
            connections.close_all()
            other.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert_nothing_was_charged(workers, effects)
