"""The rules by which failures that nobody explains turn the brake on, with a time of the test's own."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from workflows.definition import Brake
from workflows.features.brake import causes
from workflows.models import Service, Workflow
from workflows.wording import Wording, is_explained

pytestmark = pytest.mark.django_db

NUMBERS = count(1)
LIMITS = Brake()


class Cause:
    """The row of a cause, as workers of one release vote on it."""

    def __init__(self, release: str = "one", limits: Brake = LIMITS) -> None:
        self.release, self.limits = release, limits
        self.row: Any = Service.objects.create(name="test/step: gone", workflow_type="test", step="step", code="gone")
        self.row.refresh_from_db()
        self.row.now = datetime(2026, 1, 1, tzinfo=UTC)

    def fails(self, client: str = "", payload: Any = None, pk: int = 0, release: str = "") -> bool:
        pk = pk or next(NUMBERS)
        workflow = Workflow(pk=pk, submitted_by=client, payload={"n": pk} if payload is None else payload)
        release = release or self.release
        return causes.count_failure(self.row, workflow, release=release, limits=self.limits)

    def pass_(self, number: int = 1, client: str = "", *, tried: bool = False, release: str = "") -> None:
        release = release or self.release
        causes.count_passes(self.row, {client: number}, release=release, limits=self.limits, tried=tried)

    def after(self, seconds: float) -> None:
        self.row.now += timedelta(seconds=seconds)

    def is_on_after(self, failures: int, **how: Any) -> bool:
        return [self.fails(**how) for _ in range(failures)][-1]


@pytest.fixture
def cause() -> Cause:
    return Cause()


@pytest.mark.parametrize(
    ("code", "is_theirs"),
    [
        *((code, True) for code in ("cancelled", "approval_rejected", "expired", "poison", "let_fail", "duplicate_of")),
        *((code, False) for code in ("broken_session", "none_after_key", "overdue", "answer_invalid", "", "of_nobody")),
    ],
)
def test_which_of_the_engines_failures_say_something_of_one_workflow_only(code: str, is_theirs: bool) -> None:
    assert is_explained(Wording(), code) is is_theirs


def test_five_of_different_workflows_turn_it_on_and_one_that_fails_often_does_not(cause: Cause) -> None:
    assert not cause.is_on_after(9, pk=next(NUMBERS))
    assert not cause.is_on_after(3)
    assert cause.fails()
    assert cause.row.releases == ["one"]


def test_only_the_last_five_minutes_count_of_failures_and_of_passes(cause: Cause) -> None:
    cause.is_on_after(4)
    cause.pass_(100)
    cause.after(299)
    cause.is_on_after(1)
    cause.after(62)
    assert not cause.is_on_after(3), "the first four are too old"
    assert cause.fails(), "and so are the passes"


def test_half_of_all_that_came_to_the_step_have_to_fail(cause: Cause) -> None:
    cause.fails()
    cause.pass_(6)
    assert not cause.is_on_after(4)
    assert cause.fails()


def test_two_in_a_hundred_at_fifty_a_second_never_turn_it_on(cause: Cause) -> None:
    luck = random.Random(23)
    for _ in range(600):
        failed = sum(luck.random() < 0.02 for _ in range(50))
        cause.pass_(50 - failed)
        assert not any(cause.fails() for _ in range(failed))
        cause.after(1)


def test_what_has_passed_all_the_time_does_not_outweigh_what_fails_now(cause: Cause) -> None:
    for _ in range(280):
        cause.pass_(49, client="a")
        cause.pass_(49, client="b")
        cause.fails("ab"[cause.row.now.second % 2])
        cause.after(1)
    failures = next(n for n in count(1) if cause.fails("ab"[n % 2]))
    assert 5 <= failures <= 20


def test_the_odd_payloads_of_one_client_are_that_clients_trouble_while_others_pass(cause: Cause) -> None:
    cause.fails("odd")
    for _ in range(100):
        cause.pass_(client="well")
        assert not cause.is_on_after(2, client="odd")
    assert not cause.fails("well"), "one odd patient of the other's"


def test_the_only_client_turns_it_on(cause: Cause) -> None:
    assert cause.is_on_after(5, client="only")


def test_one_payload_sent_often_does_not_turn_it_on_while_others_pass(cause: Cause) -> None:
    cause.fails(payload={"same": 1})
    cause.pass_()
    assert not cause.is_on_after(20, payload={"same": 1})


def test_another_release_is_judged_by_its_own(cause: Cause) -> None:
    cause.is_on_after(5)
    cause.pass_(10, release="two")
    assert not cause.fails(release="two"), "an odd payload among many"
    assert cause.fails(release="three"), "its first one fails"
    assert cause.row.releases == ["one", "three"]


def test_a_pass_ends_it_for_its_release_only_if_it_was_let_try_when_a_trial_was_due(cause: Cause) -> None:
    cause.is_on_after(5)
    cause.fails(release="two")
    cause.pass_(tried=True)
    assert cause.row.releases == ["one", "two"], "no trial is due: it was on its way before"
    cause.after(60)
    cause.pass_()
    assert cause.row.releases == ["one", "two"]
    cause.pass_(tried=True)
    assert (cause.row.releases, cause.row.opened_at is None) == (["two"], False)
    cause.pass_(tried=True, release="two")
    assert cause.row.opened_at is None


def test_after_it_was_let_go_two_are_enough_for_five_minutes(cause: Cause) -> None:
    cause.is_on_after(5)
    cause.after(60)
    cause.pass_(tried=True)
    assert not cause.fails()
    assert cause.fails()
    cause.after(120)
    cause.pass_(tried=True)
    cause.after(301)
    assert not cause.is_on_after(4)


def test_what_was_judged_is_forgotten_with_the_next_suspicion_unless_it_comes_soon(cause: Cause) -> None:
    cause.is_on_after(5)
    cause.row.judged = [1]
    cause.after(60)
    cause.pass_(tried=True)
    cause.fails()
    assert cause.row.judged == [1]
    cause.after(301)
    cause.row.since = None
    cause.fails()
    assert cause.row.judged == []


def test_a_hold_of_a_step_that_crashes_ends_when_its_time_is_over_though_it_crashes_meanwhile(cause: Cause) -> None:
    cause.row.code = causes.CRASHED
    cause.is_on_after(5)
    cause.row.held_by, cause.row.retry_at = "boss", cause.row.now + timedelta(hours=1)
    cause.fails()
    assert cause.row.retry_at == cause.row.now + timedelta(hours=1)


def test_a_suspicion_ends_when_nothing_has_failed_for_five_minutes(cause: Cause) -> None:
    cause.fails()
    assert cause.row.since
    cause.after(301)
    cause.pass_()
    assert (cause.row.since, cause.row.judged) == (None, [])


def test_the_definition_may_say_otherwise() -> None:
    eager = Cause(limits=Brake(failures=2, within=timedelta(minutes=1), share=0.1))
    eager.fails()
    eager.pass_(15)
    assert eager.fails()
    with pytest.raises(ValueError, match="share"):
        Brake(share=0)


def test_a_clock_that_was_set_back_forgets_what_is_yet_to_come(cause: Cause) -> None:
    cause.is_on_after(4)
    cause.after(-3600)
    assert not cause.fails()


def test_so_many_clients_are_told_apart_and_no_more(cause: Cause, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "MOST_CLIENTS", 5)
    for number in range(10):
        cause.pass_(client=f"client {number}")
    assert len(cause.row.tallies["one"]) == 6
