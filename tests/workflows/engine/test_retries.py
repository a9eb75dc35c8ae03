"""A step that fails for now is tried again: from the first step, later each time, and not for ever."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, last_attempt, make_due, outcomes, submit, work
from tests.workflows.engine.steps import write_a_group
from workflows.definition import Retry, Step
from workflows.errors import RetryableStepError
from workflows.models import Event, Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


def fail_for_now(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError("The service is busy.", code="busy")


def test_a_retryable_failure_leaves_nothing_behind_but_its_history() -> None:
    define([write_a_group, fail_for_now])
    before = submit()
    workflow = work(before)
    assert workflow.status == "PENDING"
    assert workflow.retry_count == 1
    assert workflow.invisible_until > before.invisible_until
    assert workflow.current_step == "fail_for_now"
    assert workflow.last_error_code == "busy"
    assert not Group.objects.filter(name="written by a step").exists()
    assert outcomes(workflow) == {"write_a_group": "ran", "fail_for_now": "failed"}
    event = Event.objects.get(workflow=workflow)
    assert event.kind == "retry_scheduled"
    assert event.detail["error_class"] == "workflows.errors.RetryableStepError"
    assert event.detail["error_message"] == "The service is busy."
    assert event.detail["invisible_until"] == workflow.invisible_until.isoformat()
    assert last_attempt(workflow).outcome == "retry"


def test_the_next_attempt_starts_at_the_first_step() -> None:
    ran = []

    def first(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        ran.append("first")
        return {}

    def second(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        ran.append("second")
        if ran.count("second") == 1:
            raise RetryableStepError
        return {}

    define([first, second])
    workflow = work(submit())
    make_due(workflow)
    assert work(workflow).status == "COMPLETE"
    assert ran == ["first", "second", "first", "second"]


def test_it_keeps_the_row_lock_after_a_step_fails() -> None:
    """Seen from another connection: at the failure, while it is rolled back, and until the decision is committed."""
    locked: list[bool] = []
    workflow = submit()

    def look_and_fail(*, workflow: Workflow, context: Any) -> None:
        Group.objects.create(name="to be rolled back")
        locked.append(engine.is_locked(workflow))
        raise RetryableStepError

    def look_at_each_statement(execute: Any, sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if "ROLLBACK TO" in sql or "RELEASE" in sql or sql.startswith('UPDATE "'):  # by Django: the wake-up comes later
            locked.append(engine.is_locked(workflow))
        return result

    define([look_and_fail])
    with connection.execute_wrapper(look_at_each_statement):
        work(workflow)
    assert len(locked) >= 3
    assert all(locked)
    assert not engine.is_locked(workflow)


def test_it_waits_longer_after_each_failure_of_the_same_step() -> None:
    define([fail_for_now], retry=Retry(base_delay=100, max_delay=150, jitter_factor=0))
    workflow = submit()
    delays = []
    for _ in range(3):
        make_due(workflow)
        workflow = work(workflow)
        delays.append((workflow.invisible_until - timezone.now()).total_seconds())
    assert delays == pytest.approx([100, 150, 150], abs=5)


def test_the_back_off_counts_from_the_failure_and_not_from_the_claim() -> None:
    def take_a_moment(*, workflow: Workflow, context: Any) -> None:
        execute("SELECT pg_sleep(0.3)")
        raise RetryableStepError(base_delay=0.5, jitter_factor=0)

    define([take_a_moment])
    workflow = work(submit())
    opened = last_attempt(workflow).opened_at
    assert workflow.invisible_until - opened >= timedelta(seconds=0.8)


def test_a_failure_of_another_step_starts_the_count_anew() -> None:
    failing = ["first"]

    def first(*, workflow: Workflow, context: Any) -> None:
        if failing[0] == "first":
            raise RetryableStepError

    def second(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError

    define([first, second])
    workflow = submit()
    for expected in (1, 2):
        make_due(workflow)
        assert work(workflow).retry_count == expected
    failing[0] = "second"
    make_due(workflow)
    assert work(workflow).retry_count == 1


def test_a_renamed_step_keeps_its_count_of_failures() -> None:
    define([fail_for_now])
    workflow = work(submit())
    define([Step(fail_for_now, name="fail_anew", formerly=("fail_for_now",))])
    make_due(workflow)
    assert work(workflow).retry_count == 2


@pytest.mark.parametrize(("error", "step", "definition", "limit"), [(1, 2, 3, 1), (None, 2, 3, 2), (None, None, 1, 1)])
def test_what_the_error_states_beats_the_step_and_that_the_definition(
    error: int | None, step: int | None, definition: int | None, limit: int
) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError(code="busy", max_attempts=error)

    define([Step(fail, retry=Retry(max_attempts=step))], retry=Retry(max_attempts=definition))
    workflow = submit()
    for _ in range(limit):
        assert workflow.status == "PENDING"
        make_due(workflow)
        workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "busy")
    assert kinds(workflow) == [*["retry_scheduled"] * (limit - 1), "failed"]
