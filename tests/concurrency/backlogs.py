"""Rows by the thousand, for tests that count what a statement costs among them; and a worker that drains them."""

from __future__ import annotations

from typing import Any

from tests.engine import worker
from workflows.models import Workflow
from workflows.postgres.statements import execute

WAITING = 100_000
DRAINED = 2_000


def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def store(count: int, *, payload: str, **columns: str) -> None:
    """Store `count` workflows; `payload` and `columns` are SQL."""
    columns = {"idempotency_key": "gen_random_uuid()", "workflow_type": "'test'", "payload": payload, **columns}
    execute(
        f"INSERT INTO workflows_workflow ({', '.join(columns)})"
        f" SELECT {', '.join(columns.values())} FROM generate_series(1, %s) n",
        [count],
    )


def store_due(count: int = DRAINED) -> None:
    """Rows of about 1,750 bytes that do not compress: four leave more than a tenth of a page free, updated ones too.

    With less the server prunes dead versions in passing, and no damage can be seen.
    """
    noise = "SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 50 + n * 0)"
    store(count, payload=f"jsonb_build_object('noise', ({noise}))", invisible_until="now() - interval '1 hour'")


def store_backlog(count: int = WAITING) -> None:
    """What a claim must not walk over. All of it is older than what is due."""
    old = {"created_at": "now() - interval '30 days'", "payload": "'{}'"}
    store(count, invisible_until="now() + n * interval '1 second'", **old)
    finished = {"status": "'COMPLETE'", "completed_at": "now()"}
    store(count, invisible_until="now() - n * interval '1 second'", **finished, **old)


def analyze() -> None:
    execute("ANALYZE workflows_workflow")


def drain() -> None:
    """Let one worker do all that is due, to the look that finds nothing."""
    this = worker()
    while this.process_next():
        pass
