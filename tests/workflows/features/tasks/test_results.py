"""How tasks end, and what their results say of it."""

from datetime import timedelta
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tests import engine
from tests.engine import ENGINE, again, worker
from tests.workflows.features.retention.test_emptied import emptied
from tests.workflows.features.tasks.conftest import FAILED, READY, RUNNING, SUCCESSFUL, row_of, run
from workflows import failpoints, testing
from workflows.errors import RetryableStepError, WorkflowCancelled
from workflows.features.tasks.contract import (
    TaskResultDoesNotExist,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from workflows.models import Attempt, Workflow
from workflows.operations import cancel, retry

pytestmark = ENGINE


def test_a_task_that_hangs_is_stopped_even_an_async_one(jobs: ModuleType, settings: Settings) -> None:
    settings.TASKS["default"]["OPTIONS"]["timeout"] = 0.5
    result = run(jobs.hang.enqueue())
    assert (result.status, result.errors[0].exception_class.__name__) == (FAILED, "StepTimeout")


def test_a_failure_rolls_back_and_tells_the_class_and_place_but_no_value(jobs: ModuleType) -> None:
    result = run(jobs.fail.enqueue("4711"))
    (error,) = result.errors
    assert (result.status, error.exception_class) == (FAILED, ValueError)
    assert "tests/workflows/features/tasks/jobs.py:" in error.traceback
    assert " in fail\n" in error.traceback
    assert "4711" not in error.traceback
    assert not User.objects.filter(username="half").exists()
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value
    assert not worker().process_next(), "one attempt, unless it asks for more"


def test_it_runs_in_a_transaction(jobs: ModuleType) -> None:
    (error,) = run(jobs.insist_on_its_own_commit.enqueue()).errors
    assert error.exception_class is RuntimeError


def test_a_task_with_retries_is_tried_again(jobs: ModuleType) -> None:
    result = run(jobs.fail_twice.enqueue())
    assert (result.status, result.errors[0].exception_class) == (READY, KeyError)
    for _ in range(2):
        again(row_of(result))
    result.refresh()
    assert (result.status, result.return_value, result.attempts, len(result.errors)) == (SUCCESSFUL, "done", 3, 2)


def test_retries_end_and_a_step_error_ends_them_at_once(jobs: ModuleType) -> None:
    result = jobs.fail_twice.enqueue()
    for _ in range(3):
        jobs.seen.clear()
        again(row_of(result))
    result.refresh()
    assert (result.status, result.attempts) == (FAILED, 3)
    assert run(jobs.give_up.enqueue()).status == FAILED


def test_an_error_of_the_engine_s_own_is_told_as_it_was_raised(jobs: ModuleType) -> None:
    (error,) = run(jobs.be_busy.enqueue()).errors
    assert error.exception_class is RetryableStepError
    assert "The printer is busy." in error.traceback


def test_however_many_fail_each_is_tried_once(jobs: ModuleType) -> None:
    results = [jobs.fail.enqueue(f"no. {number}") for number in range(7)]
    for result in results:
        run(result)
    assert {(result.status, result.attempts) for result in results} == {(FAILED, 1)}


def test_a_cancellation_comes_after_the_errors_of_attempts(jobs: ModuleType, ada: User) -> None:
    result = run(jobs.fail_twice.enqueue())
    cancel(row_of(result).pk, user=ada, reason="test")
    result.refresh()
    assert [error.exception_class for error in result.errors] == [KeyError, WorkflowCancelled]


def test_it_runs_and_is_read_when_its_queue_and_its_backend_are_gone_from_the_settings(
    jobs: ModuleType, settings: Settings
) -> None:
    ours = settings.TASKS["default"]
    settings.TASKS = {"default": ours, "old": ours}
    result = jobs.add.using(queue_name="mail", backend="old").enqueue(1, 1)
    settings.TASKS = {"default": {**ours, "QUEUES": ["default"]}}
    assert worker(queue="mail").process_next()
    found = jobs.add.get_result(result.id)
    assert (found.return_value, found.task.queue_name, found.backend) == (2, "mail", "old")
    found.refresh()


def test_an_attempt_that_was_put_back_is_none_of_the_task_s(jobs: ModuleType) -> None:
    result = jobs.add.enqueue(1, 1)
    Attempt.objects.create(
        workflow=row_of(result), number=1, worker="a:1", outcome="put_back", closed_at=timezone.now()
    )
    assert run(result).attempts == 1


def test_the_last_error_is_told_beside_others_of_its_class(jobs: ModuleType) -> None:
    result = run(jobs.be_busy.enqueue())
    row = row_of(result)
    Workflow.objects.filter(pk=row.pk).update(last_error_message="It crashed its worker 3 times in a row.")
    result.refresh()
    assert [error.traceback.strip().rpartition("\n")[2] for error in result.errors] == [
        "workflows.errors.RetryableStepError: The printer is busy.",
        "workflows.errors.RetryableStepError: It crashed its worker 3 times in a row.",
    ]


def test_people_cancel_and_retry_it(jobs: ModuleType, ada: User) -> None:
    result = jobs.fail.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("x")
    cancel(row_of(result).pk, user=ada, reason="test")
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == (FAILED, WorkflowCancelled)
    failed = run(jobs.fail.enqueue("x"))
    retry(row_of(failed).pk, user=ada, reason="test")
    assert run(failed).attempts == 2


def test_a_page_shows_it_without_its_arguments(jobs: ModuleType, ada: User, client: Client) -> None:
    failed = run(jobs.fail.enqueue("hush-4711"))
    client.force_login(ada)
    page = client.get(f"/admin/workflows/workflow/{row_of(failed).pk}/change/").content.decode()
    assert jobs.fail.module_path in page
    assert "ValueError" in page
    assert "hush-4711" not in page


def test_signals(jobs: ModuleType, ada: User) -> None:
    told: list[tuple[str, str]] = []
    finished_in_a_transaction: list[bool] = []

    def tell(name: str) -> Any:
        def receive(sender: type, task_result: Any, **kwargs: Any) -> None:
            told.append((name, task_result.status))
            if name == "finished":
                finished_in_a_transaction.append(connection.in_atomic_block)

        return receive

    receivers = {signal: tell(name) for signal, name in SIGNALS.items()}
    for signal, receiver in receivers.items():
        signal.connect(receiver)
    try:
        run(jobs.add.enqueue(1, 1))
        run(jobs.fail.enqueue("x"))
        result = run(jobs.fail_twice.enqueue())
        assert told == [
            *[("enqueued", READY), ("started", RUNNING), ("finished", SUCCESSFUL)],
            *[("enqueued", READY), ("started", RUNNING), ("finished", FAILED)],
            *[("enqueued", READY), ("started", RUNNING)],
        ]
        for _ in range(2):
            again(row_of(result))
        assert told[8:] == [("started", RUNNING), ("started", RUNNING), ("finished", SUCCESSFUL)]
        cancel(row_of(jobs.add.enqueue(1, 1)).pk, user=ada, reason="test")
        assert told[11:] == [("enqueued", READY), ("finished", FAILED)]
        assert finished_in_a_transaction == [False] * 4
    finally:
        for signal, receiver in receivers.items():
            signal.disconnect(receiver)


SIGNALS = {task_enqueued: "enqueued", task_started: "started", task_finished: "finished"}


@pytest.mark.parametrize("result_id", ["", "no uuid", str(UUID(int=7))])
def test_a_result_that_is_not_there(jobs: ModuleType, result_id: str) -> None:
    with pytest.raises(TaskResultDoesNotExist):
        task_backends["default"].get_result(result_id)


def test_neither_other_workflows_nor_emptied_tasks_are_results(jobs: ModuleType) -> None:
    result = run(jobs.add.enqueue(1, 1))
    other = engine.submit()
    emptied(lambda: row_of(result))
    for gone in (other.key, result.id):
        with pytest.raises(TaskResultDoesNotExist):
            task_backends["default"].get_result(gone)


def test_a_dead_worker_leaves_the_task_to_another(jobs: ModuleType) -> None:
    result = jobs.add.enqueue(1, 1)
    with failpoints.armed("before_commit", crash), pytest.raises(testing.Crash):
        worker().process_next()
    run(result)
    assert (result.status, result.attempts) == (SUCCESSFUL, 2)


def crash() -> None:
    raise testing.Crash
