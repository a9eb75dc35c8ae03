"""The bare loops: psycopg alone, and the commits of the engine. Nothing that works the same way can be faster.

| loop | for each workflow |
|---|---|
| `recorded` | the claim's transaction, open until the end; for each step one commit on a second connection |
| `two commits` | the engine's rows of a workflow without recorded steps: the attempt, and all that is decided |
| `one commit` | the claim's transaction alone, and the row made COMPLETE in it |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import psycopg

_CLAIM = """
    SELECT id, idempotency_key, payload FROM workflows_workflow
     WHERE status = 'PENDING' AND queue = 'default' AND NOT begun AND invisible_until <= now()
     ORDER BY invisible_until, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED"""

_RECORD = """
    INSERT INTO workflows_effect (workflow_id, step, state, result, idempotency_key, attempt, settled_at)
    VALUES (%s, %s, 'done', '{"reference": "made-up"}', %s, 0, clock_timestamp())"""

_OPEN = "INSERT INTO workflows_attempt (workflow_id, number, worker, release) VALUES (%s, 1, 'bare', '') RETURNING id"
_COMPLETE = "UPDATE workflows_workflow SET status = 'COMPLETE', completed_at = clock_timestamp() WHERE id = %s"
_TELL = "INSERT INTO workflows_event (workflow_id, kind, attempt) VALUES (%s, 'completed', 1)"
_CLOSE = """
    UPDATE workflows_attempt SET outcome = 'complete', closed_at = clock_timestamp(), steps = '[]',
           steps_in_short = %s WHERE id = %s"""

Session = psycopg.Connection[Any]


def recorded(claim: Session, attempt_log: Session, pk: int, key: str, steps: int) -> None:
    for number in range(1, steps + 1):
        attempt_log.execute(_RECORD, [pk, f"step_{number}", f"{key}:step_{number}"])
    claim.execute(_COMPLETE, [pk])


def two_commits(claim: Session, attempt_log: Session, pk: int, key: str, steps: int) -> None:
    ((attempt,),) = attempt_log.execute(_OPEN, [pk]).fetchall()
    ran = ", ".join(f"step_{number} 0.0" for number in range(1, steps + 1))
    claim.execute(_COMPLETE, [pk])
    claim.execute(_TELL, [pk])
    claim.execute(_CLOSE, [ran, attempt])


def one_commit(claim: Session, attempt_log: Session, pk: int, key: str, steps: int) -> None:
    claim.execute(_COMPLETE, [pk])


LOOPS: dict[str, Callable[[Session, Session, int, str, int], None]] = {
    "bare loop, recorded": recorded,
    "bare loop, two commits": two_commits,
    "bare loop, one commit": one_commit,
}


def drain(url: str, steps: int, loop: str) -> None:
    """Work through what is due."""
    with psycopg.connect(url) as claim, psycopg.connect(url, autocommit=True) as attempt_log:
        # Prepared on an empty table it would go on reading the table from its start.
        claim.execute("SET plan_cache_mode = force_custom_plan")
        claim.commit()
        while row := claim.execute(_CLAIM).fetchone():
            pk, key, _ = row
            LOOPS[loop](claim, attempt_log, pk, str(key), steps)
            claim.commit()


if __name__ == "__main__":
    drain(sys.argv[1], int(sys.argv[2]), sys.argv[3])
