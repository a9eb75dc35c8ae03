"""The contract of Django's tasks, point by point: https://docs.djangoproject.com/en/6.0/ref/tasks/."""

import json
from datetime import datetime, timedelta
from datetime import timezone as zone
from types import ModuleType

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from tests import engine
from tests.engine import ENGINE, elsewhere, worker
from tests.workflows.features.tasks.conftest import BACKEND, FAILED, JOBS, READY, RUNNING, SUCCESSFUL, row_of, run
from workflows.checks_of_settings import check_named_definitions
from workflows.definition import definitions
from workflows.features.tasks import contract
from workflows.features.tasks.checks import check_tasks
from workflows.features.tasks.contract import InvalidTask, TaskResultStatus
from workflows.ingress import api_keys
from workflows.models import Workflow
from workflows.tasks import task

pytestmark = ENGINE


def test_a_task_is_enqueued_run_and_its_result_read(jobs: ModuleType) -> None:
    result = jobs.add.enqueue(2, b=3)
    assert (result.status, result.args, result.kwargs, result.attempts) == (READY, [2], {"b": 3}, 0)
    assert result.enqueued_at
    assert (result.started_at, result.is_finished) == (None, False)
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    run(result)
    assert (result.status, result.return_value, result.attempts, result.errors) == (SUCCESSFUL, 5, 1, [])
    assert result.started_at == result.last_attempted_at <= result.finished_at
    assert result.worker_ids == ["test-host:1"]
    assert jobs.add.get_result(result.id).return_value == 5


def test_it_runs_when_the_callers_transaction_commits_or_not_at_all(jobs: ModuleType) -> None:
    with transaction.atomic():
        jobs.add.enqueue(1, 1)
        assert not elsewhere(worker().process_next)
        transaction.set_rollback(True)
    assert not worker().process_next()


def test_a_task_may_take_its_context(jobs: ModuleType) -> None:
    result = run(jobs.look.enqueue(name="Ada"))
    assert result.return_value == "Ada 1"
    assert jobs.seen == [(result.id, RUNNING)]


def test_it_waits_for_run_after(jobs: ModuleType) -> None:
    later = timezone.now() + timedelta(hours=1)
    result = jobs.add.using(run_after=later).enqueue(1, 1)
    assert not worker().process_next()
    assert result.task.run_after == later
    engine.make_due(row_of(result))
    assert run(result).return_value == 2


def test_times_that_no_calendar_has_are_moved_into_it(jobs: ModuleType) -> None:
    far, past = (time.replace(tzinfo=zone(timedelta(hours=h))) for time, h in ((datetime.max, -5), (datetime.min, 5)))
    never = jobs.add.using(run_after=far).enqueue(1, 1)
    assert run(jobs.add.using(run_after=past).enqueue(1, 1)).is_finished
    assert row_of(never).invisible_until.year == 9999


def test_a_past_time_is_no_way_past_those_that_wait(jobs: ModuleType) -> None:
    first = jobs.add.enqueue(1, 1)
    jobs.add.using(run_after=timezone.now() - timedelta(days=1)).enqueue(1, 1)
    assert run(first).is_finished


def test_a_higher_priority_goes_first_and_queues_have_their_own_workers(jobs: ModuleType) -> None:
    low, high = (jobs.add.using(priority=each).enqueue(1, each) for each in (-100, 100))
    mail = jobs.add.using(queue_name="mail").enqueue(1, 1)
    assert run(high).is_finished
    low.refresh()
    assert low.status == READY
    assert run(low).is_finished
    assert not worker().process_next()
    assert worker(queue="mail").process_next()
    assert (mail.task.queue_name, high.task.priority) == ("mail", 100)


def test_async_tasks_and_async_callers(jobs: ModuleType) -> None:
    User.objects.create(username="ada")
    result = async_to_sync(jobs.wait_a_moment.aenqueue)()
    run(result)
    assert async_to_sync(jobs.wait_a_moment.aget_result)(result.id).return_value == 1


def test_what_cannot_be_returned_or_enqueued(jobs: ModuleType) -> None:
    assert run(jobs.return_nonsense.enqueue()).status == FAILED
    with pytest.raises(TypeError):
        jobs.add.enqueue(object(), 1)
    with transaction.atomic():
        with pytest.raises(ValueError, match="null character"):
            jobs.add.enqueue("\x00", 1)
        with pytest.raises(ValueError, match="too many digits"):
            jobs.add.enqueue(10**5000, 1)
        with pytest.raises(ValueError, match="4 MiB"):
            jobs.add.enqueue("x" * 5 * 2**20, 1)
        assert jobs.add.enqueue({7: "as other backends store it"}, 1).args[0] == {"7": "as other backends store it"}
    assert Workflow.objects.count() == 2


def test_a_task_may_enqueue_another(jobs: ModuleType) -> None:
    result = run(jobs.enqueue_another.enqueue())
    assert run(jobs.add.get_result(result.return_value)).return_value == 2


def test_no_api_client_starts_a_task(jobs: ModuleType, client: Client) -> None:
    body = {"workflow_type": jobs.add.module_path, "business_key": "k", "input": {"args": [1, 1], "kwargs": {}}}
    answer = client.post(
        "/v1/workflows",
        json.dumps(body),
        content_type="application/json",
        headers={"authorization": f"Bearer {api_keys.create('shop')}"},
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "workflow_type_unknown")
    assert not Workflow.objects.exists()


def test_a_task_that_this_release_does_not_have_waits_for_one_that_does(jobs: ModuleType) -> None:
    result = jobs.add.enqueue(1, 1)
    row = row_of(result)
    Workflow.objects.filter(pk=row.pk).update(workflow_type="os.system")
    assert worker().process_next()
    assert Workflow.objects.get(pk=row.pk).waiting_for == "a release that knows the workflow type os.system"
    assert not row.attempts.exists()


def test_a_task_that_no_worker_would_find_is_refused(jobs: ModuleType, settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": BACKEND}}
    definitions.cache_clear()
    with pytest.raises(InvalidTask, match=r"tasks\.py"):
        jobs.add.enqueue(1, 1)


def test_one_function_is_no_two_tasks_of_other_options(jobs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "tried_again", task(retries=3)(jobs.add.func), raising=False)
    definitions.cache_clear()
    with pytest.raises(InvalidTask, match="two functions"):
        jobs.add.enqueue(1, 1)


def test_tasks_that_are_not_valid(jobs: ModuleType) -> None:
    for change in ({"priority": 101}, {"queue_name": "unknown"}, {"run_after": timezone.make_naive(timezone.now())}):
        with pytest.raises(InvalidTask):
            jobs.add.using(**change)
    with pytest.raises(InvalidTask, match="retries"):
        task(retries=-1)(jobs.add.func)
    long = jobs.add.func.__class__(jobs.add.func.__code__, {"__name__": "m" * 100}, "add")
    with pytest.raises(InvalidTask, match="100 characters"):
        task(long)


def test_options_that_cannot_be(jobs: ModuleType, settings: Settings) -> None:
    wrong = {"timeouts": 3, "timeout": 0, "retention": {"contents": 3}, "modules": JOBS}
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": wrong}}
    told = [each.msg.removeprefix("TASKS has OPTIONS that cannot be: ") for each in check_tasks()]
    assert told == [
        "none is called 'timeouts'. Did you mean 'timeout'?",
        "a timeout is a number of seconds above 0, and not 0.0.",
        "Retention has no option 'contents'. Did you mean 'content'?",
    ]


def test_checks(jobs: ModuleType, settings: Settings) -> None:
    assert not list(check_tasks())
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["q" * 64], "OPTIONS": {"modules": ["shop.none"]}}}
    assert [each.id for each in check_tasks()] == ["workflows.E039", "workflows.E042"]
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"modules": [jobs.__name__]}}}
    definitions.cache_clear()
    call_command("check")


@pytest.mark.parametrize(("backend", "status"), [("DummyBackend", READY), ("ImmediateBackend", SUCCESSFUL)])
def test_djangos_backends_for_tests_take_the_same_tasks(
    jobs: ModuleType, settings: Settings, backend: str, status: TaskResultStatus
) -> None:
    settings.TASKS = {"default": {"BACKEND": f"workflows.tasks.{backend}"}}
    declared = task(retries=2)(jobs.add.func)
    assert declared.enqueue(1, 1).status == status
    assert not Workflow.objects.exists()


def test_retries_of_a_backend_that_has_none_are_refused(jobs: ModuleType, settings: Settings) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{contract.DummyBackend.__module__}.DummyBackend"}}
    with pytest.raises(InvalidTask, match="has no retries"):
        task(retries=1)(jobs.add.func)


def test_a_module_that_fails_is_a_finding_of_check_with_the_cure(jobs: ModuleType, settings: Settings) -> None:
    options = {"modules": ["tests.workflows.features.tasks.old_jobs"]}
    settings.TASKS = {"default": {"BACKEND": BACKEND, "OPTIONS": options}}
    [told] = check_tasks()
    assert (told.id, "old_jobs.py:" in told.msg) == ("workflows.E042", True)
    assert told.hint == "Declare it by the task of ours: from workflows.tasks import task."


def test_tasks_alone_are_something_to_run(jobs: ModuleType, settings: Settings) -> None:
    settings.WORKFLOWS = []
    definitions.cache_clear()
    assert not list(check_named_definitions())


def test_a_task_of_another_backend_may_be_enqueued_here(jobs: ModuleType, settings: Settings) -> None:
    ours = settings.TASKS["default"]
    settings.TASKS = {"default": {"BACKEND": "workflows.tasks.DummyBackend"}, "background": ours}
    result = run(jobs.add.using(backend="background").enqueue(1, 1))
    assert (result.backend, result.return_value) == ("background", 2)


def test_a_task_is_kept_as_long_as_the_options_say(jobs: ModuleType, settings: Settings) -> None:
    days = [timedelta(days=number) for number in (7, 30)]
    settings.TASKS["default"]["OPTIONS"]["retention"] = dict(zip(("content", "rows"), days, strict=True))
    retention = definitions()[jobs.add.module_path].retention
    assert [retention.content, retention.rows] == days
