"""The bare loop: psycopg alone, and the commits of the engine. Nothing that works the same way can be faster.

For each workflow the claim's transaction, open until the end; for each step one commit on a second connection.
"""

from __future__ import annotations

import sys

import psycopg

_CLAIM = """
    SELECT id, idempotency_key, payload FROM workflows_workflow
     WHERE status = 'PENDING' AND queue = 'default' AND invisible_until <= now()
     ORDER BY invisible_until, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED"""

_RECORD = """
    INSERT INTO workflows_effect (workflow_id, step, state, result, idempotency_key, attempt, settled_at)
    VALUES (%s, %s, 'done', '{"reference": "made-up"}', %s, 0, clock_timestamp())"""

_COMPLETE = "UPDATE workflows_workflow SET status = 'COMPLETE', completed_at = clock_timestamp() WHERE id = %s"


def drain(url: str, steps: int) -> None:
    """Work through what is due."""
    with psycopg.connect(url) as claim, psycopg.connect(url, autocommit=True) as ledger:
        # Prepared on an empty table it would go on reading the table from its start.
        claim.execute("SET plan_cache_mode = force_custom_plan")
        claim.commit()
        while row := claim.execute(_CLAIM).fetchone():
            pk, key, _ = row
            for number in range(1, steps + 1):
                ledger.execute(_RECORD, [pk, f"step_{number}", f"{key}:step_{number}"])
            claim.execute(_COMPLETE, [pk])
            claim.commit()


if __name__ == "__main__":
    drain(sys.argv[1], int(sys.argv[2]))
