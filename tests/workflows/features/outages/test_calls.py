"""The seam: what a call has met, and which errors say so."""

from __future__ import annotations

import pytest

from workflows.errors import RetryableStepError, StepError
from workflows.outages import call_to, unavailable_service
from workflows.timeouts import StepTimeout


def call(error: BaseException, *, unavailable: bool) -> None:
    with call_to("letters") as each:
        if unavailable:
            each.unavailable()
        raise error


def caught(error: BaseException, *, unavailable: bool) -> BaseException:
    with pytest.raises(type(error)) as raised:
        call(error, unavailable=unavailable)
    return raised.value


def test_an_error_of_a_call_that_met_it_unavailable_carries_the_services_name() -> None:
    assert unavailable_service(caught(RetryableStepError("down"), unavailable=True)) == "letters"
    assert unavailable_service(caught(RetryableStepError("busy"), unavailable=False)) == ""
    assert unavailable_service(None) == ""


def test_so_does_an_error_that_a_step_raises_from_it() -> None:
    def step() -> None:
        try:
            call(OSError(), unavailable=True)
        except OSError:
            raise RetryableStepError("not now") from None

    with pytest.raises(RetryableStepError) as raised:
        step()
    assert unavailable_service(raised.value) == "letters"


def test_a_step_that_ran_out_of_time_in_a_call_met_it_unavailable() -> None:
    assert unavailable_service(caught(StepTimeout(1.0), unavailable=False)) == "letters"


def test_what_is_not_said_is_an_answer_or_after_an_error_neither() -> None:
    with call_to("letters") as each:
        pass
    assert each.met_unavailable is False
    with pytest.raises(StepError), call_to("letters") as each:
        raise StepError
    assert each.met_unavailable is None
