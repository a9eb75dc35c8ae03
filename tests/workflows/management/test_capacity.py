"""`manage.py capacity`: the arithmetic, and what it says."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from workflows.management.commands.capacity import Backlog, backlog, load


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("capacity", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("rate", "p95", "busy", "workers"), [(1, 3, 1, 3), (1, 3, 0.8, 4), (5, 3, 1, 15), (0.001, 0.001, 1, 1)]
)
def test_workers_are_the_rate_times_the_time_with_room_to_spare(
    rate: float, p95: float, busy: float, workers: int
) -> None:
    assert load(rate, p95, busy).workers == workers


def test_what_the_busiest_hour_leaves_waits_until_the_rest_of_the_day_leaves_time() -> None:
    """One worker does 1 a second; 3 arrive, then 21/23."""
    assert backlog(1, 3, 1) == pytest.approx(Backlog(7_200, 7_200 / (1 - 21 / 23), 7_200))
    assert backlog(1, 2, 2) == backlog(1, 1, 1) == Backlog(0, 0, 0), "also of an even day that takes all of their time"
    assert "enough for the busiest hour" in said("--per-day", "100", "--p95", "3")


@pytest.mark.parametrize(("per_day", "often", "too_many"), [("1e6", 0, 0), ("5e6", 1, 0), ("5e7", 1, 1)])
def test_it_says_when_ids_run_fast(per_day: str, often: int, too_many: int) -> None:
    told = said("--per-day", per_day, "--p95", "1")
    assert told.count("autovacuum_freeze_max_age    1000000000") == often
    assert told.count("several clusters") == too_many


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
