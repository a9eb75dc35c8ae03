"""`manage.py capacity`: the arithmetic, and what it says."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from workflows.management.capacity import Cost, plan


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("capacity", *arguments, stdout=out)
    return out.getvalue()


def test_workers_are_the_rate_times_the_time_with_room_to_spare() -> None:
    """86,400 a day are one a second: of 3 s each they keep 3 busy."""
    assert plan(86_400, 3, busy=1).mean.workers == 3
    assert plan(86_400, 3, busy=0.8).mean.workers == 4
    assert plan(86_400, 3, busy=1, peak=5).peak.workers == 15
    assert plan(1, 0.001).mean.workers == 1
    assert plan(86_400, 3, busy=1).mean.connections == 6


def test_what_the_busiest_hour_leaves_waits_until_the_rest_of_the_day_leaves_time() -> None:
    found = plan(86_400, 1, busy=1, peak=3)  # 1 worker does 1 a second; 3 arrive, then 21/23
    assert found.backlog.waiting == 7_200
    assert found.backlog.longest_wait == pytest.approx(7_200)
    assert found.backlog.drained_after == pytest.approx(7_200 / (1 - 21 / 23))


def test_nothing_waits_where_the_workers_are_enough() -> None:
    assert plan(86_400, 1, busy=0.5, peak=2).backlog == (type(plan(1, 1).backlog)(0, 0.0, 0.0))
    assert plan(86_400, 1, busy=1, peak=1).backlog.waiting == 0, "an even day that takes all of their time"
    assert "enough for the busiest hour" in said("--per-day", "100", "--p95", "3")


def test_bytes_ids_and_cores_are_those_of_the_workflows() -> None:
    cost = Cost(table_bytes=10, wal_bytes=20, xids=2, worker_cpu_ms=100, server_cpu_ms=50, intake_cpu_ms=10)
    found = plan(86_400, 1, peak=2, busy=0.5, keep_days=10, cost=cost)
    assert (found.table_bytes_a_day, found.wal_bytes_a_day, found.xids_a_day) == (864_000, 1_728_000, 172_800)
    assert found.kept_bytes == 8_640_000
    assert (found.peak.commits, found.peak.wal_bytes) == (4, 40)
    assert (found.peak.worker_cores, found.peak.server_cores, found.peak.intake_cores) == (0.4, 0.2, 0.04)
    assert found.days_between_freezes == pytest.approx(200_000_000 / 172_800)


def test_it_says_so_in_a_table_and_in_words() -> None:
    told = said("--per-day", "1,000,000", "--p95", "3")
    assert "1,000,000 submissions a day of 3 s each; a worker does 20.0 a minute." in told
    (workers,) = [line.split() for line in told.splitlines() if line.startswith("worker processes")]
    assert workers[2:] == ["44", "131"]
    assert "With 44 workers the busiest hour leaves" in told
    assert "22 million transaction ids" in told
    assert "max_connections" in told
    assert "max_wal_size                 2GB" in told  # 1.27, rounded up
    assert "autovacuum_freeze_max_age" not in told


def test_it_says_when_ids_run_fast() -> None:
    assert "autovacuum_freeze_max_age    1000000000" in said("--per-day", "5e6", "--p95", "1")
    assert "several clusters" not in said("--per-day", "5e6", "--p95", "1")
    assert "several clusters" in said("--per-day", "5e7", "--p95", "1")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--per-day", "many", "--p95", "3"), "'many' will not do: give a number, from 1 to 1e"),
        (("--per-day", "nan", "--p95", "3"), "'nan' will not do"),
        (("--per-day", "10", "--p95", "0"), "'0' will not do: give seconds"),
        (("--per-day", "10", "--p95", "3", "--peak", "25"), "from 1 to 24"),
        (("--per-day", "10", "--p95", "3", "--busy", "101"), "a percentage"),
        (("--p95", "3"), "--per-day"),
    ],
)
def test_it_says_what_is_wrong_with_a_number(arguments: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(CommandError, match=complaint):
        said(*arguments)
