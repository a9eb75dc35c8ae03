"""Each step has a time limit, in Python, in SQL and in a library."""

import signal
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from tests import engine
from tests.engine import define, outcomes, submit, work
from workflows import timeouts
from workflows.definition import Step
from workflows.models import Workflow
from workflows.timeouts import StepTimeout, call_within

pytestmark = engine.ENGINE


def loop(*, workflow: Workflow, context: Any) -> None:
    while True:
        pass


def sleep(*, workflow: Workflow, context: Any) -> None:
    time.sleep(60)


def query(*, workflow: Workflow, context: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")


def write_a_group(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    Group.objects.create(name="after")
    return {}


@pytest.mark.parametrize("slow", [loop, sleep])
def test_a_step_that_takes_too_long_is_retried(slow: Any) -> None:
    define([write_a_group, Step(slow, timeout=0.1234)])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count, workflow.current_step) == ("PENDING", 1, slow.__name__)
    assert workflow.last_error_class == "workflows.timeouts.StepTimeout"
    assert workflow.last_error_message.startswith(
        "It took longer than its timeout of 0.1234 s. At tests/workflows/test_timeouts.py:"
    )
    assert not Group.objects.filter(name="after").exists()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@pytest.mark.parametrize("slow", [loop, query])
def test_a_best_effort_step_that_takes_too_long_holds_nothing_up(slow: Any) -> None:
    """Also in the middle of a query: the connection goes on to be used."""
    define([Step(slow, timeout=0.1, best_effort=True), write_a_group])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    assert outcomes(workflow)[slow.__name__] == "best_effort_failed"
    assert Group.objects.filter(name="after").exists()


def test_a_step_cannot_swallow_its_timeout_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that swallows everything is interrupted again, a moment later; and `except Exception` does not catch it."""
    monkeypatch.setattr(timeouts, "AGAIN_EVERY", 0.1)

    def careless(*, workflow: Workflow, context: Any) -> None:
        with suppress(BaseException):
            loop(workflow=workflow, context=context)
        while True:
            with suppress(Exception):
                loop(workflow=workflow, context=context)

    define([Step(careless, timeout=0.1)])
    assert work(submit()).retry_count == 1


def test_a_step_in_time_is_left_alone_and_no_timer_is_left_behind() -> None:
    assert call_within(0.2, lambda: 7) == 7
    signal.raise_signal(signal.SIGALRM)  # one that was on its way as the call returned
    time.sleep(0.3)


def test_a_step_that_takes_the_signal_for_itself_takes_it_for_no_other() -> None:
    call_within(0.5, lambda: signal.signal(signal.SIGALRM, signal.SIG_IGN))
    with pytest.raises(StepTimeout):
        call_within(0.05, lambda: time.sleep(0.5))


def test_another_thread_has_no_timer_and_calls_without_a_limit() -> None:
    results = []
    thread = threading.Thread(target=lambda: results.append(call_within(0.01, lambda: time.sleep(0.1) or "done")))
    thread.start()
    thread.join()
    assert results == ["done"]
