"""From when on a step's time is counted: from its own code on, whatever the database has taken before that."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from tests import engine
from tests.clock import Clock, standing_still
from tests.engine import define, submit
from workflows import failpoints
from workflows.definition import Step
from workflows.engine import process_status
from workflows.engine.process_status import Slot
from workflows.models import Effect, Workflow

pytestmark = engine.ENGINE


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return standing_still(monkeypatch, "workflows.engine.worker_boundary")


def deadlines_in(slot: Slot, seen: list[float]) -> Any:
    """A step's code, or its lookup, that notes until when it may take."""

    def look(**_: Any) -> dict[str, Any]:
        status = slot.read()
        assert status
        seen.append(status.deadline)
        return {}

    return look


def stalls_before_the_call(clock: Clock, seconds: float) -> Any:
    def stall() -> None:
        clock.now += seconds

    return failpoints.armed("after_intent:call", stall)


@pytest.mark.parametrize(("stall", "later"), [(60.0, 60.0), (0.5, 0.0)])
def test_the_seconds_in_which_its_intent_was_written_are_not_the_steps(
    stall: float, later: float, clock: Clock
) -> None:
    (slot,), seen = process_status.allocate(1), []
    define([Step(deadlines_in(slot, seen), once=True, name="call", timeout=30)])
    submit()
    began = clock.now
    with stalls_before_the_call(clock, stall):
        assert engine.worker(slot=slot).process_next()
    assert seen == [began + later + 30], "not for a moment: each write costs"


def test_nor_are_they_its_lookups(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    (slot,), seen = process_status.allocate(1), []
    look = deadlines_in(slot, seen)
    define([Step(look, once=True, name="call", timeout=30, lookup=look)])
    workflow = submit()
    Effect.objects.create(workflow=workflow, step="call", state="unknown", attempt=1, idempotency_key="k")
    began = clock.now
    from workflows.state import attempt_log

    def require_claim(attempt: Any) -> None:
        clock.now += 60

    monkeypatch.setattr(attempt_log, "require_claim", require_claim)
    assert engine.worker(slot=slot).process_next()
    assert seen == [began + 60 + 60]
    assert Workflow.objects.get().status == "COMPLETE"
    connections.close_all()
