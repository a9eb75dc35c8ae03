"""What workers vote of the calls that they have made, by simulated time, with the statements as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import DateTimeField, Value

from tests.workflows.features.outages.services import story
from workflows.features.outages import calls, circuits
from workflows.features.outages.calls import WorkersCalls
from workflows.models import Service
from workflows.state.attempt_log import OpenAttempt

pytestmark = pytest.mark.django_db

START = datetime(2026, 1, 1, tzinfo=UTC)


class Time:
    """The test's, for the workers and for the database."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def not_closed(self) -> Any:
        """What a claim reads of the circuits."""
        with connection.cursor() as cursor:
            cursor.execute(circuits.NOT_CLOSED.replace("clock_timestamp()", f"timestamptz '{self.now}'"))
            (rows,) = cursor.fetchone() or (None,)
        return json.loads(rows) if isinstance(rows, str) else rows


@pytest.fixture
def the_time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(calls, "monotonic", lambda: time.seconds)
    monkeypatch.setattr(calls.attempt_log, "ALIAS", "default")
    monkeypatch.setattr(circuits, "ClockTimestamp", lambda: Value(time.now, output_field=DateTimeField()))
    return time


@contextmanager
def in_hand(worker: WorkersCalls, workflow: Any, not_closed: Any) -> Iterator[None]:
    worker.begin(workflow, not_closed, OpenAttempt(1, 1, workflow.pk, ""))
    yield
    worker.end()


def test_what_comes_back_a_little_too_fast_opens_nothing(the_time: Time) -> None:
    """The last calls of each second are too many, and each worker votes a second after it met the first of them."""
    workers = [WorkersCalls() for _ in range(4)]
    for number in range(10 * 16):
        the_time.seconds = number / 16
        worker = workers[number % 4]
        workflow: Any = SimpleNamespace(pk=number, parked_on="programs")
        with in_hand(worker, workflow, the_time.not_closed()):
            worker.require_callable("programs")
            worker.note("programs", unavailable=number % 16 >= 10)
            worker.vote()
    assert story() == []
    assert Service.objects.get().failed_at == START + timedelta(seconds=number / 16), "the release goes by that"


def test_one_bad_payload_makes_no_suspects_of_those_that_come_after_it(the_time: Time) -> None:
    worker = WorkersCalls()
    for number in range(40):
        the_time.seconds = number * 0.3
        is_bad = number % 4 != 0 or number == 0  # it is just after those of others that the worker votes
        workflow: Any = SimpleNamespace(pk=1 if is_bad else number, parked_on="")
        with in_hand(worker, workflow, the_time.not_closed()):
            worker.note("programs", unavailable=is_bad)
            worker.vote()
    assert Service.objects.get().suspects == [1]


def test_what_was_answered_before_a_circuit_opened_is_not_the_outcome_of_its_trial(the_time: Time) -> None:
    """The worker's call was started while the circuit was suspected still, and ends in vain when a trial is due."""
    Service.objects.create(name="programs", since=START, failed=1, suspects=[1])
    worker = WorkersCalls()
    workflow: Any = SimpleNamespace(pk=1, parked_on="")
    for at in (1.0, 1.1):
        the_time.seconds = at
        with in_hand(worker, workflow, the_time.not_closed()):
            worker.note("programs", unavailable=False)
            worker.vote()
    with in_hand(worker, workflow, the_time.not_closed()):
        Service.objects.update(opened_at=the_time.now, retry_at=START + timedelta(seconds=6))
        the_time.seconds = 11
        worker.note("programs", unavailable=True)
        worker.vote()
    assert circuits.find_open("programs")
    assert Service.objects.get().cool_off == 10
