"""`manage.py stats`: the rollup's numbers of a time, for people and for programs."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from workflows.models.rollup import Grain, Metric, Rollup

pytestmark = pytest.mark.django_db

LABELS = {"workflow_type": "onboarding", "step": "", "outcome": "", "code": "", "seconds": 0, "buckets": []}


def count(metric: Metric, number: int, grain: Grain = Grain.MINUTE, minutes: int = 0, **labels: Any) -> None:
    at = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    at = at.replace(minute=0) if grain == Grain.HOUR else at
    Rollup.objects.create(grain=grain, metric=metric, at=at, count=number, **{**LABELS, **labels})


def stats(*arguments: str) -> str:
    call_command("stats", *arguments, stdout=(printed := StringIO()), no_color=True)
    return printed.getvalue()


@pytest.fixture
def counted() -> None:
    count(Metric.STARTED, 1204)
    count(Metric.STARTED, 70, minutes=90)
    count(Metric.STARTED, 2000, Grain.HOUR)
    count(Metric.STARTED, 5000, Grain.TOTAL)
    count(Metric.FINISHED, 20, outcome="complete", buckets=[10, 9, 0, 0, 1, 0, 0, 0, 0, 0])
    count(Metric.FINISHED, 3, outcome="failed", step="execute_checkout", code="card_declined", buckets=[0] * 10)
    count(Metric.FINISHED, 2, outcome="failed", step="start_visit", code="TypeError", buckets=[0] * 10)
    count(Metric.ATTEMPT, 25, outcome="complete")
    count(Metric.ATTEMPT, 0, outcome="vanished")
    count(Metric.UNDO, 1, outcome="undone", step="execute_checkout", buckets=[1])
    for step, outcome, number in (
        ("start_visit", "ran", 8),
        ("start_visit", "failed", 2),
        ("validate_payload", "ran", 9),
    ):
        count(Metric.STEP, number, step=step, outcome=outcome, buckets=[number, *[0] * 9])
    count(Metric.STEP, 50, step="start_visit", outcome="recorded", buckets=[0] * 9 + [50])


def test_it_tells_the_numbers_of_the_last_hour(counted: None) -> None:
    lines = [" ".join(line.split()) for line in stats("--type", "onboarding").splitlines()]
    for line in (
        "came 1,204",
        "completed 20",
        "failed 5 3 by the patient's own doing",
        "took: p50, p95 1 s 2 s",
        "waits left out - - limit 3 s",
        "attempts complete 25",
        "calls undone undone 1",
        "execute_checkout 3 card_declined",
    ):
        assert line in lines
    steps = [line.split()[:3] for line in lines if line.startswith(("validate_payload", "start_visit"))]
    assert steps == [["validate_payload", "9", "0"], ["start_visit", "10", "2"], ["start_visit", "2", "TypeError"]]


def test_a_longer_time_is_summed_up_from_hours_and_programs_read_json(counted: None) -> None:
    told = json.loads(stats("--last", "2d", "--json"))
    assert {of["workflow_type"]: of["came"] for of in told["types"]}["onboarding"] == 2000
    assert told["since"].endswith(":00:00+00:00")
    assert json.loads(stats("--last", "2h", "--json", "--type", "onboarding"))["types"][0]["came"] == 1274


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--last", "7"], "'7' is not a time: give 30m, 6h or 7d"),
        (["--last", "0h"], "not a time"),
        (["--last", "400d"], "not a time"),
        (["--last", "²h"], "not a time"),
        (["--type", "parcels"], "no type 'parcels', but .*onboarding"),
    ],
)
def test_it_refuses_what_it_does_not_understand(arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        stats(*arguments)
