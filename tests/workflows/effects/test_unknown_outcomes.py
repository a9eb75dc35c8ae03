"""What a step makes of not knowing: whatever it raises, swallows or waits for, its call is not forgotten."""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from time import sleep
from typing import Any

import pytest

from tests import engine
from tests.engine import again, define, submit, work
from tests.workflows.downstream import Downstream, state
from workflows import waits
from workflows.definition import Step
from workflows.errors import RetryableStepError, StepError, UnknownOutcome
from workflows.models import Effect, Workflow
from workflows.waits import wait_for_time

pytestmark = engine.ENGINE


def calls_and_waits(service: Downstream, swallow: bool) -> Step:
    """A step of a definition that nobody has tried: it charges first."""

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        service.call(workflow=workflow, context=context)
        with contextlib.suppress(BaseException if swallow else ArithmeticError):
            wait_for_time(workflow, "a moment", timedelta(hours=1))
        return {"number": 1}

    return Step(call, once=True, name="call", undo=service.undo, lookup=service.lookup)


@pytest.mark.parametrize("swallow", [False, True])
def test_what_a_step_has_called_before_it_waits_is_not_forgotten(service: Downstream, swallow: bool) -> None:
    service.found = [{"number": 1}]
    define([calls_and_waits(service, swallow)])
    workflow = work(submit())
    assert state() == "unknown"
    assert again(workflow).status == "FAILED"
    assert (service.calls, service.undone) == ([f"{workflow.key}:call"], [f"{workflow.key}:call:undo"])


@pytest.mark.parametrize(("own", "inside"), [(StepError, True), (RetryableStepError, False)])
def test_an_error_of_its_own_for_a_timeout_says_nothing_of_the_call(own: type[StepError], inside: bool) -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        try:
            sleep(5)
        except BaseException:
            if inside:
                raise own("Broken.") from None
        raise own("Broken.")

    define([Step(call, once=True, timeout=0.1)])
    work(submit())
    assert state() == "unknown"


@pytest.mark.parametrize("swallow", [False, True])
def test_a_timeout_leaves_it_unknown_and_is_retried_though_a_step_swallows_it(swallow: bool) -> None:
    """A swallowed one does not say that the step did not apply."""

    def call(*, workflow: Workflow, context: Any) -> None:
        with contextlib.suppress(BaseException if swallow else ArithmeticError):
            sleep(5)

    define([Step(call, once=True, timeout=0.1)])
    workflow = work(submit())
    assert (state(), workflow.status, workflow.retry_count) == ("unknown", "PENDING", 1)
    assert workflow.last_error_class == "workflows.timeouts.StepTimeout"


def test_a_result_that_comes_late_is_a_result() -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        with contextlib.suppress(BaseException):
            sleep(5)
        return {"number": 1}

    define([Step(call, once=True, timeout=0.1)])
    assert (work(submit()).status, state()) == ("COMPLETE", "done")


@pytest.mark.parametrize(
    ("own", "then"),
    [
        (StepError("Broken."), "unknown"),
        (RetryableStepError("Busy."), "unknown"),
        (StepError("Declined.", answers_key=True), "not_done"),
    ],
)
def test_an_error_of_its_own_for_an_unknown_outcome_says_nothing_of_the_call(own: StepError, then: str) -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        try:
            raise UnknownOutcome("no answer")
        except RetryableStepError as error:
            raise own from error

    define([Step(call, once=True)])
    work(submit())
    assert state() == then


HOUR = timedelta(hours=1)


def test_a_wait_that_fails_says_nothing_of_the_call_before_it(service: Downstream) -> None:
    wrong: list[Callable[[Workflow], Any]] = [
        lambda workflow: waits.wait_for_time(workflow, "a\x00b", HOUR),
        lambda workflow: waits.wait_for_time(workflow, "pause", 3600),  # type: ignore[arg-type]
        lambda workflow: waits.wait_for_signal(workflow, "paid", "cancel", timeout=HOUR),
        lambda workflow: waits.wait_for_children(workflow, "parts", [waits.Child("unheard of", {})], timeout=HOUR),
        lambda workflow: waits.require_approval(workflow, "review", question="May it?", team="nobody", timeout=HOUR),
        lambda workflow: waits.wait_for_signal(workflow, "paid", "paid", timeout=-HOUR),
    ]
    for number, wait in enumerate(wrong, 1):

        def call(*, workflow: Workflow, context: Any, wait: Callable[[Workflow], Any] = wait) -> dict[str, Any]:
            service.call(workflow=workflow, context=context)
            wait(workflow)
            return {}

        define([Step(call, once=True)])
        workflow = work(submit())
        assert (len(service.calls), Effect.objects.get(workflow=workflow).state) == (number, "unknown")
