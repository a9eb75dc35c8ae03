"""The benchmark runs to its end. What it measures is for people: no test judges a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.db import connection

from tests.servers import database_url

pytestmark = pytest.mark.django_db(transaction=True)


def benchmark(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.benchmark", *arguments],
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
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE datname = %s", [f"onramp_benchmark_{process.pid}"])
        assert cursor.fetchone() is None


def test_it_says_what_is_wrong_with_a_number() -> None:
    process = benchmark("--workflows", "none")
    _, complained = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "argument --workflows: 'none' will not do: give a whole number, 1 or more" in complained
