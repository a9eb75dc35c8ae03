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


@pytest.mark.long
def test_it_measures_and_prints_and_leaves_no_database_behind() -> None:
    process = benchmark(
        *(
            "--workflows",
            "20",
            "--processes",
            "1",
            "--rounds",
            "1",
            "--kills",
            "1",
            "--signals",
            "3",
            "--backlog",
            "300",
        ),
        *("--idle", "3", "--drained", "100"),
    )
    printed, complained = process.communicate(timeout=120)
    assert process.returncode == 0, complained
    for row in (
        "round 1",
        "median",
        "goal",
        "SIGKILL to held again",
        "worst",
        "signal to taken up again",
        "99th percentile",
        "looks, full ones shared",
    ):
        assert row in printed
    assert_no_database_is_left(process)


@pytest.mark.long
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


@pytest.mark.long
def test_it_measures_the_pages_of_the_console() -> None:
    pages = "^(home|workflows: state waiting|inbox: all|list: apikey)"
    process = benchmark("--rows", "2000", "--warm", "--pages", pages, of="tests.benchmark.console")
    printed, complained = process.communicate(timeout=300)
    assert process.returncode == 0, complained
    for row in ("home", "workflows: state waiting, page 200", "inbox: all, last page", "(403)"):
        assert row in printed
    assert_no_database_is_left(process)


@pytest.mark.long
def test_it_measures_how_soon_a_submission_is_taken_up() -> None:
    process = benchmark("--submissions", "5", "--every", "50", "--rest", "1", of="tests.benchmark.pickup")
    printed, complained = process.communicate(timeout=120)
    assert process.returncode == 0, complained
    for row in ("median", "worst", "of a core"):
        assert row in printed
    assert_no_database_is_left(process)


def assert_no_database_is_left(process: subprocess.Popen[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname = %s", [f"onramp_benchmark_{process.pid}"])
        assert cursor.fetchone() is None


def test_it_says_what_is_wrong_with_a_number() -> None:
    process = benchmark("--workflows", "none")
    _, complained = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "argument --workflows: 'none' will not do: give a whole number, 1 or more" in complained
