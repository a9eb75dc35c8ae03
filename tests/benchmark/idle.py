"""What many idle workers cost, each second."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.benchmark.database import BenchmarkError, Database, production
from tests.servers import ROOT


def measure(database: Database, *, workers: int, drained: int) -> dict[str, float]:
    """Of each thing that they do, the seconds that it takes each second; with `drained` rows in the way."""
    if not workers:
        return {}
    database.begin_anew()
    database.execute("ALTER TABLE workflows_workflow SET (autovacuum_enabled = off)")
    database.execute(
        """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload)
           SELECT gen_random_uuid(), 'no_ops', '{}' FROM generate_series(1, %s)""",
        drained,
    )
    database.execute("UPDATE workflows_workflow SET status = 'COMPLETE', completed_at = now()")
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmark.looks", str(workers)],
        cwd=ROOT,
        env={**os.environ, **production(database.url)},
        capture_output=True,
        text=True,
        check=False,
    )
    database.execute("ALTER TABLE workflows_workflow RESET (autovacuum_enabled)")
    if done.returncode:
        raise BenchmarkError(f"The idle workers failed:\n{done.stderr}")
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds
