"""What a step raises says whether it is tried again; anything unforeseen fails the workflow for good."""

import re
from datetime import timedelta
from decimal import Decimal
from threading import Timer
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Group
from pydantic import BaseModel

from tests import engine
from tests.engine import define, kinds, last_attempt, outcomes, submit, work, worker
from tests.workflows.engine.steps import say_one, write_a_group
from workflows.definition import Brake, Step, WorkflowDefinition
from workflows.errors import RetryableStepError, StepError
from workflows.models import Attempt, Effect, Event, Workflow
from workflows.waits import WaitFailed

pytestmark = engine.ENGINE


def fail_for_good(*, workflow: Workflow, context: Any) -> None:
    raise StepError("The card was declined.", code="card_declined")


def test_any_other_failure_is_for_good(settings: Any) -> None:
    settings.RELEASE = "r7"
    define([write_a_group, fail_for_good, say_one])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert workflow.completed_at is not None
    assert (workflow.current_step, workflow.last_error_code) == ("fail_for_good", "card_declined")
    assert workflow.failed_release == "r7"
    assert not Group.objects.filter(name="written by a step").exists()
    assert outcomes(workflow) == {"write_a_group": "ran", "fail_for_good": "failed"}
    assert Event.objects.get(workflow=workflow).detail["error_message"] == "The card was declined."


def test_error_text_holds_nothing_of_the_payload() -> None:
    """Of an error that is not ours: where it came from, and the numbers that it has."""

    def repeat_it(*, workflow: Workflow, context: Any) -> None:
        said = f"bad: {workflow.payload['name']} <{workflow.payload['email']}> born 1990-02-28, 'secret'"
        response = httpx.Response(409, request=httpx.Request("GET", "http://secret/"))
        raise httpx.HTTPStatusError(said, request=response.request, response=response)

    define([repeat_it])
    workflow = work(submit({"name": "Zebulon", "email": "zeb@example.org"}))
    assert re.fullmatch(r"tests/workflows/engine/test_failures\.py:\d+, HTTP 409", workflow.last_error_message)
    stored = [workflow.last_error_message, str(list(Event.objects.values())), str(list(Attempt.objects.values()))]
    for text in stored:
        for value in ("Zebulon", "zeb@", "1990", "secret"):
            assert value not in text
    assert "in repeat_it" in last_attempt(workflow).traceback


# --- Errors of the step's own classes ---------------------------------------------------------------------


class Busy(RetryableStepError):
    """An error of a step's own that does not call __init__ of ours."""

    def __init__(self) -> None:
        self.queue = 7


@pytest.mark.parametrize("once", [False, True])
def test_an_error_of_a_class_of_the_steps_own_is_what_its_class_says(once: bool) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise Busy

    define([Step(fail, once=once)])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)
    assert set(Effect.objects.values_list("state", flat=True)) <= {"not_done"}


NONSENSE: list[tuple[str, Any, str]] = [
    ("max_attempts", float("nan"), "TypeError"),
    ("base_delay", "abc", "TypeError"),
    ("max_delay", float("nan"), "ValueError"),
    ("jitter_factor", timedelta(1), "TypeError"),
    ("wake_on", [3], "TypeError"),
    ("wake_on", 3, "TypeError"),
]
NUMBERS_AND_NAMES: list[Any] = [
    pytest.param("max_attempts", 10**5000, id="max_attempts-of-5001-digits"),
    ("base_delay", -5),
    pytest.param("base_delay", 10**400, id="base_delay-of-401-digits"),
    ("max_delay", float("inf")),
    ("wake_on", "paid"),
    ("wake_on", ["a\x00b", "paid"]),
]


def test_an_error_with_an_argument_that_is_nonsense_fails_the_step_and_says_where() -> None:
    for argument, value, error in NONSENSE:

        def fail(*, workflow: Workflow, context: Any, said: Any = {argument: value}) -> None:  # noqa: B006
            raise RetryableStepError("Busy.", **said)

        define([fail], brake=Brake(failures=1000))
        workflow = work(submit())
        assert (workflow.status, workflow.last_error_class) == ("FAILED", error), argument
        assert re.fullmatch(r"tests/workflows/engine/test_failures\.py:\d+", workflow.last_error_message)


def test_whatever_an_error_of_a_step_s_own_states_it_is_retried() -> None:
    for attribute, value, *_ in [*NONSENSE, *NUMBERS_AND_NAMES]:
        own = type("Own", (Busy,), {attribute: value})

        def fail(*, workflow: Workflow, context: Any, own: type[Busy] = own) -> None:
            raise own

        define([fail])
        workflow = work(submit())
        assert (workflow.status, workflow.retry_count) == ("PENDING", 1), attribute
        assert workflow.wake_on == (["paid"] if "paid" in str(value) else [])
        Workflow.objects.update(status="COMPLETE")  # it may be due again at once


class Unpaid(WaitFailed):
    """An error of a step's own that does not call __init__ of ours, and knows no wait."""

    def __init__(self) -> None:
        self.sum = 7


def test_an_error_of_the_steps_own_that_is_like_a_wait_s_fails_the_step() -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise Unpaid

    define([fail])
    assert work(submit()).status == "FAILED"


# --- What cannot be written down, and what the engine cannot do -------------------------------------


class CannotBePrinted(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_an_error_that_is_hard_to_write_down_is_still_the_steps_failure() -> None:
    for error in [
        StepError("No.", code="c" * 300),
        StepError("No.", code="nul \x00, surrogate \ud800"),
        StepError("No.", code=402),  # type: ignore[arg-type]
        CannotBePrinted(),
        type("E" * 300, (Exception,), {})("No."),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ]:

        def fail(*, workflow: Workflow, context: Any, error: Exception = error) -> None:
            raise error

        define([fail])
        workflow = work(submit())
        assert (workflow.status, last_attempt(workflow).outcome) == ("FAILED", "failed"), type(error)


class Measured(BaseModel):
    weight: float | None = None


@pytest.mark.parametrize("weight", ["nan", Decimal("-Infinity")])
def test_a_result_that_the_context_makes_unstorable_is_the_steps_failure(
    weight: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weigh(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"weight": weight}

    measured = WorkflowDefinition(name="test", steps=[weigh], context_class=Measured)
    monkeypatch.setattr("workflows.engine.loop.definitions", lambda: {"test": measured})
    workflow = work(submit())
    assert (workflow.status, workflow.context) == ("FAILED", {"weight": None})
    assert workflow.last_error_message == "A number is NaN or infinite."


def drain() -> None:
    """Let a worker do what is due, for 10 seconds at most."""
    this = worker()
    give_up = Timer(10, this.stopping.set)
    give_up.start()
    this.run(drain=True)
    give_up.cancel()
    give_up.join()


class Demanding(BaseModel):
    """A context that cannot be made from nothing: the engine cannot even start."""

    number: int


def test_a_row_that_the_engine_fails_on_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"number": 1}

    define([say_one])
    good = engine.DEFINITION
    bad = WorkflowDefinition(name="bad", steps=[say_one], context_class=Demanding)
    monkeypatch.setattr("workflows.engine.loop.definitions", lambda: {"test": good, "bad": bad})
    first, second = submit(workflow_type="bad"), submit()
    drain()
    assert Workflow.objects.get(pk=second.pk).status == "COMPLETE"
    first.refresh_from_db()
    assert (first.status, kinds(first), last_attempt(first).outcome) == ("PENDING", ["lost", "put_back"], "lost")
    reason = Event.objects.get(workflow=first, kind="put_back").detail["reason"]
    assert reason == "The engine itself failed; the worker's log tells how."
    assert first.invisible_until > second.created_at
