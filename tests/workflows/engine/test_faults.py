"""What cannot be written down must not keep a worker from deciding; what the engine cannot do, from going on."""

from decimal import Decimal
from threading import Timer
from typing import Any

import pytest
from pydantic import BaseModel

from tests import engine
from tests.engine import define, kinds, last_attempt, submit, work, worker
from workflows.definition import WorkflowDefinition
from workflows.errors import StepError
from workflows.models import Workflow

pytestmark = engine.ENGINE


class CannotBePrinted(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    "error",
    [
        StepError("No.", code="c" * 300),
        StepError("No.", code="nul \x00, surrogate \ud800"),
        StepError("nul \x00, surrogate \ud800"),
        StepError("No.", code=402),  # type: ignore[arg-type]
        CannotBePrinted(),
        type("E" * 300, (Exception,), {})("No."),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
)
def test_an_error_that_is_hard_to_write_down_is_still_the_steps_failure(error: Exception) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise error

    define([fail])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert last_attempt(workflow).outcome == "failed"


class Measured(BaseModel):
    weight: float | None = None


@pytest.mark.parametrize("weight", ["nan", "inf", Decimal("-Infinity")])
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
    assert first.invisible_until > second.created_at
