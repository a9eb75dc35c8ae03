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

from tests.benchmark.measures import MEASURES
from tests.servers import database_url

pytestmark = pytest.mark.django_db(transaction=True)


def benchmark(*arguments: str, of: str = "tests.benchmark") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", of, *arguments],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": database_url()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Of each measure the least that it can do.
SMALLEST = (
    *("--rounds", "1", "--processes", "1", "--seconds", "1", "--connections", "2", "--slow", "2"),
    *("--workflows", "10", "--submissions", "3", "--every", "20", "--rest", "1", "--claims", "5", "--due", "100"),
    *("--waiting", "100", "--finished", "100", "--open", "1", "--idle", "3", "--drained", "100", "--kills", "1"),
    *("--signals", "3", "--backlog", "300", "--onboardings", "3"),
)


def test_each_measure_runs_and_prints_and_leaves_no_database_behind(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    process = benchmark("--peers", "none", *SMALLEST, "--json", str(written))
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
        *("intake", "drain", "pickup", "claim", "waking", "memory", "bytes"),
    }
    assert f"of {len(told['targets'])} targets met" in " ".join(printed.split())
    assert_no_database_is_left(process)


def test_it_knows_its_measures_and_its_peers() -> None:
    process = benchmark("--only", "drain,speed")
    _, complained = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "there is no measure 'speed': choose of intake, drain," in complained


def test_it_weighs_an_onboarding(tmp_path: Path) -> None:
    written = tmp_path / "figures.json"
    process = benchmark("--workflows", "10", "--processes", "1", "--json", str(written), of="tests.benchmark.footprint")
    printed, complained = process.communicate(timeout=120)
    assert process.returncode == 0, complained
    for row in ("effect", "attempt", "all tables", "WAL, with", "transaction ids"):
        assert row in printed
    told = json.loads(written.read_text())
    assert told["workflows"] == 10
    assert 1_000 < told["bytes"] < 100_000
    assert told["xids"] > 2  # the claim's, the attempt's, and those of its calls
    assert_no_database_is_left(process)


def test_it_measures_the_pages_of_the_console() -> None:
    pages = "^(home|workflows: state waiting|inbox: all|list: apikey)"
    process = benchmark("--rows", "2000", "--warm", "--pages", pages, of="tests.benchmark.console")
    printed, complained = process.communicate(timeout=300)
    assert process.returncode == 0, complained
    for row in ("home", "workflows: state waiting, page 200", "inbox: all, last page", "(403)"):
        assert row in printed
    assert_no_database_is_left(process)


def assert_no_database_is_left(process: subprocess.Popen[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", [f"onramp_benchmark_{process.pid}%"])
        assert cursor.fetchone() is None


def test_it_says_what_is_wrong_with_a_number() -> None:
    process = benchmark("--workflows", "none")
    _, complained = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "argument --workflows: 'none' will not do: give a whole number, 1 or more" in complained
