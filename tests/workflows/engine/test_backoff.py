from datetime import timedelta
from typing import Any

import pytest

from workflows.definition import Retry
from workflows.engine.backoff import DEFAULT, LONGEST, delay_seconds, merge_policies
from workflows.errors import RetryableStepError


def test_delays_double_up_to_the_limit() -> None:
    delays = [delay_seconds(n, base_delay=2, max_delay=300, jitter_factor=0) for n in range(1, 11)]
    assert delays == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_jitter_stays_within_its_share_on_both_sides() -> None:
    delays = [delay_seconds(20, base_delay=2, max_delay=300, jitter_factor=0.2) for _ in range(1000)]
    assert 240 <= min(delays) < 270
    assert 330 < max(delays) <= 360


@pytest.mark.parametrize("stated", [float("inf"), float("nan"), -1e12, 1e300])
@pytest.mark.parametrize("field", ["base_delay", "max_delay", "jitter_factor"])
def test_whatever_is_stated_is_a_delay_that_can_be_written_down(field: str, stated: float) -> None:
    policy = {"base_delay": 2.0, "max_delay": 300.0, "jitter_factor": 0.2, field: stated}
    if field == "base_delay":
        policy["max_delay"] = stated
    assert all(0 <= delay_seconds(n, **policy) <= LONGEST for n in (1, 10, 100_000)), "and nothing overflows"


def test_each_field_is_decided_by_the_first_that_states_it() -> None:
    error = RetryableStepError(base_delay=1)
    step, definition = Retry(base_delay=5, max_delay=6), Retry(max_delay=7, max_attempts=8)
    assert merge_policies(error, step, definition) == (8, 1, 6, DEFAULT.jitter_factor)
    assert merge_policies(None, None) == DEFAULT


@pytest.mark.parametrize("field", ["max_attempts", "base_delay", "max_delay", "jitter_factor"])
def test_zero_is_a_statement(field: str) -> None:
    assert getattr(merge_policies(Retry(**{field: 0})), field) == 0


@pytest.mark.parametrize("stated", ["soon", [3], float("nan")])
@pytest.mark.parametrize("field", ["max_attempts", "base_delay", "max_delay", "jitter_factor"])
def test_a_policy_of_what_is_no_number_is_refused_where_it_is_made(field: str, stated: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=field):
        Retry(**{field: stated})


def test_a_delay_may_be_a_timedelta() -> None:
    assert merge_policies(Retry(base_delay=timedelta(minutes=1))).base_delay == 60  # type: ignore[arg-type]
