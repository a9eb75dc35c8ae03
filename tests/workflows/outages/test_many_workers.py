"""64 workers with two calls each, by simulated time: how often a service is called, with the statements as they are."""

from __future__ import annotations

import heapq
import json
import random
from collections import deque
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.db.models import DateTimeField, Value

from tests.workflows.outages.services import story
from workflows.errors import ServiceUnavailable
from workflows.models import Service
from workflows.outages import calls, circuits
from workflows.outages.calls import WorkersCalls

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("the_time")]

START = datetime(2026, 1, 1, tzinfo=UTC)


class Time:
    """The simulation's, for the workers and for the database."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.simulations: list[Simulation] = []

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


@pytest.fixture
def the_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[Time]:
    """Afterwards no worker is in the midst of a workflow: it would be taken for the one of the next test."""
    time = Time()
    monkeypatch.setattr(calls, "monotonic", lambda: time.seconds)
    monkeypatch.setattr(calls.attempt_log, "ALIAS", "default")
    monkeypatch.setattr(circuits, "ClockTimestamp", lambda: Value(time.now, output_field=DateTimeField()))
    random.seed(12)
    yield time
    for simulation in time.simulations:
        for _, _, going_on in simulation.busy:
            going_on.close()
    assert not calls._at_work


class Simulation:
    """`fails` says whether a call fails just then, `takes` how long it takes; so many workflows a second arrive."""

    def __init__(
        self, time: Time, fails: Callable[[], bool], *, workers: int = 64, rate: float = 3.0, takes: float = 0.05
    ) -> None:
        self.pause = workers / rate
        self.time, self.fails, self.takes = time, fails, takes
        self.made = self.number = 0
        self.failed_at: list[float] = []
        self.under_way: set[int] = set()  # of those that were released
        self.parked: deque[int] = deque()
        self.released: deque[int] = deque()
        self.busy: list[tuple[float, int, Generator[float, None, None]]] = []
        time.simulations.append(self)
        for worker in range(workers):
            heapq.heappush(self.busy, (random.uniform(0, self.pause), worker, self.work(WorkersCalls())))

    def run(self, until: float) -> Simulation:
        tick = self.time.seconds
        while self.busy[0][0] < until:
            at, worker, going_on = heapq.heappop(self.busy)
            while tick < at:
                self.time.seconds, tick = tick, tick + 1
                self.release()
            self.time.seconds = at
            heapq.heappush(self.busy, (at + next(going_on), worker, going_on))
        return self

    def release(self) -> None:
        """As `parking` does: one for a trial; all that are parked when it is closed."""
        with circuits.locked("programs") as service:
            assert service
            if service.opened_at is None:
                self.released += self.parked
                self.parked.clear()
            elif circuits.is_trial_due(service) and self.parked and not self.released and not self.under_way:
                self.released.append(self.parked.popleft())

    def not_closed(self) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(circuits.NOT_CLOSED.replace("clock_timestamp()", f"timestamptz '{self.time.now}'"))
            (rows,) = cursor.fetchone() or (None,)
        return json.loads(rows) if isinstance(rows, str) else rows

    def work(self, worker: WorkersCalls) -> Generator[float, None, None]:
        """One workflow after the other: two calls, and a vote after each step."""
        while True:
            self.number += 1
            was_parked, failed = bool(self.released), False
            pk = self.released.popleft() if was_parked else self.number
            self.under_way |= {pk} if was_parked else set()
            workflow: Any = SimpleNamespace(pk=pk, parked_on="programs" if was_parked else "")
            with worker.of(workflow, self.not_closed()):
                try:
                    for _ in range(2):
                        worker.require_callable("programs")
                        self.made += 1
                        failed = self.fails()
                        yield self.takes
                        worker.note("programs", unavailable=failed)
                        worker.vote()
                        if failed:
                            break
                except ServiceUnavailable:
                    self.parked.append(pk)
            if was_parked and failed and circuits.find_open("programs"):
                self.parked.append(pk)
            self.under_way.discard(pk)
            yield 0.1 if self.released else random.uniform(0, 2 * self.pause)


@pytest.mark.slow
@pytest.mark.parametrize(("takes", "most"), [(0.05, 60), (10.0, 120)], ids=["answers 503", "hangs"])
def test_a_dead_service_gets_few_calls_in_twenty_minutes(the_time: Time, takes: float, most: int) -> None:
    """The calls until it opens are one of each worker, and those of its first two seconds."""
    simulation = Simulation(the_time, lambda: True, takes=takes).run(30 + takes)
    until_open = simulation.made
    simulation.run(20 * 60)
    assert circuits.find_open("programs")
    assert simulation.made < until_open + 60, (until_open, simulation.made)
    assert simulation.made <= most


@pytest.mark.slow
def test_it_closes_when_the_service_is_back(the_time: Time) -> None:
    down = True
    simulation = Simulation(the_time, lambda: down).run(300)
    assert circuits.find_open("programs")
    down = False
    simulation.run(400)
    assert not circuits.find_open("programs")
    assert not simulation.parked


@pytest.mark.slow
def test_two_percent_of_errors_open_nothing(the_time: Time) -> None:
    """Of 200 calls a second."""
    Simulation(the_time, lambda: random.random() < 0.02, workers=8, rate=100).run(45)
    assert story() == []


def test_what_comes_back_a_little_too_fast_opens_nothing(the_time: Time) -> None:
    """The last calls of each second are too many, and each worker votes a second after it met the first of them."""
    simulation = Simulation(the_time, lambda: False)
    workers = [WorkersCalls() for _ in range(4)]
    for number in range(10 * 16):
        the_time.seconds = number / 16
        worker = workers[number % 4]
        workflow: Any = SimpleNamespace(pk=number, parked_on="programs")
        with worker.of(workflow, simulation.not_closed()):
            worker.require_callable("programs")
            worker.note("programs", unavailable=number % 16 >= 10)
            worker.vote()
    assert story() == []
    assert Service.objects.get().failed_at == START + timedelta(seconds=number / 16), "the release goes by that"


def test_one_bad_payload_makes_no_suspects_of_those_that_come_after_it(the_time: Time) -> None:
    simulation, worker = Simulation(the_time, lambda: False), WorkersCalls()
    for number in range(40):
        the_time.seconds = number * 0.3
        is_bad = number % 4 != 0 or number == 0  # it is just after those of others that the worker votes
        workflow: Any = SimpleNamespace(pk=1 if is_bad else number, parked_on="")
        with worker.of(workflow, simulation.not_closed()):
            worker.note("programs", unavailable=is_bad)
            worker.vote()
    assert Service.objects.get().suspects == [1]


def test_what_was_answered_before_a_circuit_opened_is_not_the_outcome_of_its_trial(the_time: Time) -> None:
    """The worker's call was started while the circuit was suspected still, and ends in vain when a trial is due."""
    simulation = Simulation(the_time, lambda: False)
    Service.objects.create(name="programs", since=START, failed=1, suspects=[1])
    worker = WorkersCalls()
    workflow: Any = SimpleNamespace(pk=1, parked_on="")
    for at in (1.0, 1.1):
        the_time.seconds = at
        with worker.of(workflow, simulation.not_closed()):
            worker.note("programs", unavailable=False)
            worker.vote()
    with worker.of(workflow, simulation.not_closed()):
        Service.objects.update(opened_at=the_time.now, retry_at=START + timedelta(seconds=6))
        the_time.seconds = 11
        worker.note("programs", unavailable=True)
        worker.vote()
    assert circuits.find_open("programs")
    assert Service.objects.get().cool_off == 10


@pytest.mark.slow
def test_thirty_percent_of_errors_may_open_it_and_it_closes_again(the_time: Time) -> None:
    simulation = Simulation(the_time, lambda: random.random() < 0.3, workers=8, rate=10).run(300)
    simulation.fails = lambda: False
    simulation.run(420)
    assert not circuits.find_open("programs")
    assert not simulation.parked
    assert story().count("opened") <= 10
    assert Service.objects.get().since is None
