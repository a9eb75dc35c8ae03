"""A circuit: which votes open it, what a trial does, and what ends a suspicion. The time is the test's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from workflows.features.outages import circuits
from workflows.features.outages.circuits import LONGEST_COOL_OFF, RECENT, TRIAL, WINDOW
from workflows.models import CircuitEvent, Service

pytestmark = pytest.mark.django_db

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Circuit:
    """A service's row, and its time."""

    def __init__(self) -> None:
        self.service = Service(name="programs", failed=0, answered=0, suspects=[], cool_off=5.0, held_by="", cohort=0)
        self.service._state.db = "default"
        self.at(0)

    def at(self, seconds: float) -> Circuit:
        self.service.now = START + seconds * SECOND  # type: ignore[attr-defined]
        return self

    def vote(self, votes: str, *, workflows: int = 3, every: float = 1.0) -> Circuit:
        """F unavailable, A answered, B both; each vote `every` seconds, of one workflow after the other."""
        for number, each in enumerate(votes):
            circuits.vote(self.service, unavailable=each in "FB", answered=each in "AB", workflow_id=number % workflows)
            self.service.now += every * SECOND  # type: ignore[attr-defined]
        return self

    @property
    def is_open(self) -> bool:
        return self.service.opened_at is not None

    @property
    def trial_in(self) -> float:
        assert self.service.retry_at is not None
        return (self.service.retry_at - self.service.now).total_seconds()  # type: ignore[attr-defined]

    def trial(self, vote: str) -> Circuit:
        assert self.service.retry_at is not None
        self.service.now = self.service.retry_at  # type: ignore[attr-defined]
        circuits.vote(self.service, unavailable=vote == "F", answered=vote == "A", workflow_id=9)
        return self


@pytest.fixture
def circuit() -> Circuit:
    return Circuit()


def test_five_votes_of_three_workflows_open_it_and_with_answers_three_quarters_of_all(circuit: Circuit) -> None:
    assert not circuit.vote("FFFF").is_open
    assert circuit.vote("F").is_open
    event = CircuitEvent.objects.get()
    assert (event.service, event.kind, event.reason) == ("programs", "opened", "The last 5 calls failed.")
    assert not Circuit().vote("FFFFAAF").is_open, "5 of 7"
    assert Circuit().vote("FFFFAAFF").is_open, "6 of 8"


@pytest.mark.parametrize(
    ("votes", "workflows", "every"),
    [
        ("FFFFFFFFFF", 2, 1.0),  # one bad payload, or two
        ("FFFFFFFFFF", 3, 0.1),  # in one second: a host whose network is away for a moment
        ("FFFFAAF", 3, 1.0),  # 5 of 7; the next one would be three quarters
        ("FAFAFAFAFAFAFAFAFAFA", 3, 1.0),
        ("BBBBBBBBBB", 3, 1.0),  # one worker of four has a broken network, and each other one votes, too
    ],
)
def test_what_does_not_open_it(circuit: Circuit, votes: str, workflows: int, every: float) -> None:
    assert not circuit.vote(votes, workflows=workflows, every=every).is_open
    assert not CircuitEvent.objects.exists()


def test_an_answer_alone_makes_no_suspicion(circuit: Circuit) -> None:
    assert circuit.vote("AAA").service.since is None
    assert circuit.service.answered == 0


@pytest.mark.parametrize(("vote", "since", "failed"), [("A", None, 0), ("F", START + WINDOW + SECOND, 1)])
def test_a_suspicion_with_answers_ends_after_half_a_minute_and_a_failure_starts_a_new_one(
    circuit: Circuit, vote: str, since: datetime | None, failed: int
) -> None:
    assert circuit.vote("FFFFA").service.since == START
    service = circuit.at(WINDOW.total_seconds() + 1).vote(vote).service
    assert (service.since, service.failed, service.answered, len(service.suspects)) == (since, failed, 0, failed)


def test_a_suspicion_that_begins_later_than_now_is_started_anew(circuit: Circuit) -> None:
    """The server's clock was set back by an hour: for so long no vote could open the circuit."""
    circuit.vote("FF").at(-3600).vote("FFFF")
    assert not circuit.is_open
    assert circuit.vote("F").is_open


def test_a_suspicion_without_answers_goes_on(circuit: Circuit) -> None:
    """A worker whose calls time out votes every ten seconds."""
    assert circuit.vote("FFFFF", every=15.0).is_open


def test_people_see_a_suspicion_that_calls_renew_and_its_votes_count_on_beyond_that(circuit: Circuit) -> None:
    last = circuit.vote("FFFF").service.failed_at
    circuit.service.now = last + RECENT - SECOND  # type: ignore[attr-defined,operator]
    assert circuits.state_of(circuit.service) == "suspected"
    circuit.service.now += 2 * SECOND  # type: ignore[attr-defined]
    assert circuits.state_of(circuit.service) == "closed"
    assert circuit.vote("F").is_open


def test_a_call_that_started_before_it_opened_says_nothing_new(circuit: Circuit) -> None:
    circuit.vote("FFFFF")
    before = circuit.service.retry_at
    assert circuit.vote("AF", every=0.1).is_open
    assert circuit.service.retry_at == before


def test_a_trial_that_is_answered_closes_it(circuit: Circuit) -> None:
    circuit.vote("FFFFF").trial("A")
    assert not circuit.is_open
    assert (circuit.service.since, circuit.service.retry_at) == (None, None)
    assert list(CircuitEvent.objects.order_by("id").values_list("kind", "reason"))[1:] == [
        ("closed", "A call was answered.")
    ]


def test_each_trial_in_vain_doubles_the_time_to_the_next_up_to_a_minute(circuit: Circuit) -> None:
    circuit.vote("FFFFF", every=0.6)
    waits = [circuit.trial_in + 0.6]
    for _ in range(5):
        circuit.trial("F")
        waits.append(circuit.trial_in)
    for wait, expected in zip(waits, [5, 10, 20, 40, LONGEST_COOL_OFF, LONGEST_COOL_OFF], strict=True):
        assert 0.8 * expected <= wait <= 1.2 * expected


def test_opened_again_within_a_minute_it_waits_for_longer_and_later_as_at_first(circuit: Circuit) -> None:
    circuit.vote("FFFFF").trial("A")
    closed_at = (circuit.service.now - START).total_seconds()  # type: ignore[attr-defined]
    circuit.at(closed_at + 10).vote("FFFFF")
    assert circuit.service.cool_off == 10
    circuit.trial("A")
    closed_at = (circuit.service.now - START).total_seconds()  # type: ignore[attr-defined]
    circuit.at(closed_at + 90).vote("FFFFF")
    assert circuit.service.cool_off == 5


def test_closed_without_an_answer_one_more_vote_opens_it(circuit: Circuit) -> None:
    circuit.vote("FFFFF")
    circuits.close(circuit.service, "no call", on_probation=True)
    assert not circuit.is_open
    assert circuit.vote("F").is_open


def test_one_worker_at_a_time_tries_it_and_only_when_it_is_due(circuit: Circuit) -> None:
    circuit.vote("FFFFF")
    assert not circuits.take_trial(circuit.service)
    assert circuit.service.retry_at
    circuit.at((circuit.service.retry_at - START).total_seconds())
    assert circuits.take_trial(circuit.service)
    assert not circuits.take_trial(circuit.service)
    circuit.service.now += TRIAL  # type: ignore[attr-defined]  # the first one is dead
    assert circuits.take_trial(circuit.service)


def test_one_that_is_closed_by_now_may_be_called(circuit: Circuit) -> None:
    assert circuits.take_trial(circuit.service)


def test_a_time_far_ahead_is_that_of_a_clock_which_was_set_back(circuit: Circuit) -> None:
    circuit.vote("FFFFF").at(-3600)
    assert circuits.take_trial(circuit.service)


def test_one_that_is_held_is_tried_when_the_hold_is_over(circuit: Circuit) -> None:
    circuits.hold(circuit.service, until=START + timedelta(hours=2), by="ada", reason="They migrate.")
    assert circuit.is_open
    assert not circuits.take_trial(circuit.service)
    circuit.vote("A")
    assert circuit.is_open, "a late answer ends no hold"
    circuit.trial("F")
    assert circuit.is_open
    assert circuit.service.held_by == ""
    circuit.trial("A")
    assert not circuit.is_open
    assert [event.actor for event in CircuitEvent.objects.order_by("id")] == ["ada", ""]
