"""The benchmark runs to its end. What it measures is for people: no test judges a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from tests.benchmark.__main__ import MEASURES
from tests.servers import database_url

pytestmark = pytest.mark.django_db(transaction=True)


# Of each measure the least that it can do.
SMALLEST = (
    *("--rounds", "1", "--processes", "1", "--seconds", "1", "--connections", "2", "--slow", "2"),
    *("--workflows", "10", "--submissions", "3", "--every", "20", "--rest", "1", "--claims", "5", "--due", "100"),
    *("--waiting", "100", "--finished", "100", "--open", "1", "--idle", "3", "--drained", "100", "--kills", "1"),
    *("--signals", "3", "--backlog", "300", "--onboardings", "3"),
)


def test_each_measure_runs_and_prints_and_leaves_no_database_behind(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmark", "--peers", "none", *SMALLEST, "--json", str(written)],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": database_url()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    printed, complained = process.communicate(timeout=900)  # against a hang; it takes one or two minutes
    assert process.returncode == 0, complained
    told = json.loads(written.read_text())
    assert list(told["measures"]) == list(MEASURES)
    assert told["failed"] == {}
    assert {"cores", "python", "postgresql", "packages", "load_before", "load_after"} <= set(told["machine"])
    for name, measure in told["measures"].items():
        assert measure["rounds"], name
        assert all(finding["rounds"] for finding in measure["findings"]), name
        assert f"{name}: {measure['title']}" in printed
    assert {target["measure"].partition(",")[0] for target in told["targets"]} == {
        *("intake", "drain", "pickup", "claim", "purge", "waking", "memory", "bytes"),
    }
    assert f"of {len(told['targets'])} targets met" in " ".join(printed.split())
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"onramp_benchmark_{process.pid}%"])
        assert cursor.fetchone() is None
