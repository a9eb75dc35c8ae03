"""What an attempt's steps did, in the two columns that hold it, and as every reader sees it."""

from __future__ import annotations

from typing import Any

import pytest

from tests import engine
from tests.engine import another_connection, define, last_attempt, submit, terminate, work
from tests.workflows.cancelling import nothing
from tests.workflows.refusing import lose
from workflows.definition import Step
from workflows.errors import StepError
from workflows.models import Workflow
from workflows.models.steps_on_record import as_recorded, as_told

pytestmark = engine.ENGINE

RAN = {"step": "reserve", "outcome": "ran", "ms": 1.2}
RECORDED = {"step": "charge", "outcome": "recorded", "ms": 0.0}
SKIPPED = {"step": "review", "outcome": "skipped", "ms": 3}
FAILED = {"step": "thank", "outcome": "failed", "ms": 240.5, "error_class": "StepError", "error_code": "no"}
UNDONE = {"step": "charge", "outcome": "undone", "ms": 7.0, "undo": True}
UNNAMEABLE = {"step": "ship, and tell", "outcome": "ran", "ms": 1.0}
UNTIMED = {"step": "pack", "outcome": "ran"}  # the worker was lost in it


def stored(workflow: Workflow) -> tuple[str, Any]:
    """The two columns of the last attempt."""
    with another_connection() as other:
        select = (
            "SELECT steps_in_short, steps FROM workflows_attempt WHERE workflow_id = %s ORDER BY number DESC LIMIT 1"
        )
        row = other.execute(select, [workflow.pk]).fetchone()
    assert row
    return row


def names_and_outcomes(workflow: Workflow) -> list[tuple[str, str]]:
    return [(entry["step"], entry["outcome"]) for entry in last_attempt(workflow).steps]


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [RAN, RECORDED, SKIPPED],
        [RAN, FAILED, RECORDED, {**RAN, "outcome": "waiting"}],
        [UNDONE, {**UNDONE, "step": "reserve"}],
        [{**RAN, "step": "?"}, UNNAMEABLE, {**UNNAMEABLE, "step": "ship it"}, {**UNNAMEABLE, "step": "ship,"}, RAN],
        [RAN, UNTIMED, {**RAN, "step": ""}],
        [{**UNTIMED, "step": ""}],
        [{**RAN, "follow_up": True}, {**RAN, "ms": 12345.6}],
    ],
)
def test_what_is_recorded_is_what_is_told(steps: list[dict[str, Any]]) -> None:
    recorded = as_recorded(steps)
    assert as_told(recorded.in_short, recorded.in_full) == steps


def test_a_step_that_simply_ran_is_a_word_and_what_has_more_to_tell_is_told_in_full() -> None:
    in_short, in_full = as_recorded([RAN, RECORDED, SKIPPED, FAILED, UNNAMEABLE])
    assert in_short == "reserve 1.2, charge recorded 0.0, review skipped 3, thank, ?"
    assert in_full == [FAILED, UNNAMEABLE]


@pytest.mark.parametrize(
    "in_short", ["reserve 1.2, thank, charge", "reserve 1.2, thank, charge followed 2 times", "reserve soon, thank"]
)
def test_of_a_text_that_cannot_be_read_what_is_told_in_full_is_told(in_short: str) -> None:
    """A release that is newer may write it while this one still answers the console."""
    assert as_told(in_short, [FAILED]) == [FAILED]


def say(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def refuse(*, workflow: Workflow, context: Any) -> None:
    raise StepError("There is no address.", code="no_address")


def test_a_complete_workflow_tells_what_each_step_did() -> None:
    define([say, nothing, Step(refuse, best_effort=True), Step(say, name="say again")])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    in_short, in_full = stored(workflow)
    assert [word.split(" ")[0] for word in in_short.split(", ")] == ["say", "nothing", "refuse", "?"]
    assert [entry["step"] for entry in in_full] == ["refuse", "say again"]
    assert names_and_outcomes(workflow) == [
        ("say", "ran"),
        ("nothing", "skipped"),
        ("refuse", "best_effort_failed"),
        ("say again", "ran"),
    ]


def test_a_lost_attempt_tells_what_ran_before_the_loss() -> None:
    def lose_it(*, workflow: Workflow, context: Any) -> None:
        terminate("default")

    define([say, lose_it])
    workflow = lose(submit())
    assert (last_attempt(workflow).outcome, stored(workflow)[0].split(" ")[0]) == ("lost", "say")
    assert [name for name, _ in names_and_outcomes(workflow)] == ["say", "lose_it"]
