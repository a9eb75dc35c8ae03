"""A submission whose account another flow creates: told by a signal, and found all the same when that never comes."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connections
from django.utils import timezone

from onboarding.samples import Kind, Sample, sample
from tests.engine import again, expire, work, worker
from tests.sandbox_process import SandboxProcess
from workflows.models import Signal, Wait, Workflow
from workflows.signals import store

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])


@pytest.fixture(autouse=True)
def _connections_are_closed() -> Iterator[None]:
    yield
    connections["attempt_log"].close()


def enter(submission: Sample) -> Workflow:
    pk = Workflow.objects.create(
        workflow_type="onboarding",
        idempotency_key=submission.idempotency_key,
        payload=submission.payload,
        linking_id=submission.payload["linking_id"],
    ).pk
    return Workflow.objects.get(pk=pk)


def tell(submission: Sample) -> None:
    linking_id = submission.payload["linking_id"]
    store.send(source="accounts", dedupe_key=linking_id, name="account.created", linking_id=linking_id, payload={})


def test_it_goes_on_when_it_is_told_that_the_account_is_there(sandbox: SandboxProcess) -> None:
    submission = sample(Kind.LINKED, seed=401)
    workflow = work(enter(submission))
    assert (workflow.status, workflow.current_step, workflow.retry_count) == ("PENDING", "await_linked_account", 0)
    assert workflow.waiting_for == "the account that another flow creates"
    assert workflow.invisible_until - timezone.now() < timedelta(seconds=6), "it looks for itself soon"
    assert Wait.objects.get().deadline - timezone.now() > timedelta(hours=47)
    sandbox.account(**submission.account or {})
    tell(submission)
    assert work(workflow).status == "COMPLETE"
    assert Wait.objects.get().outcome == "received"
    assert not Signal.objects.get().ignored


def test_the_accounts_service_may_be_down_for_a_while_and_the_signal_is_heard_all_the_same(
    sandbox: SandboxProcess,
) -> None:
    submission = sample(Kind.LINKED, seed=406)
    sandbox.fault(service="accounts", operation=None, kind="status", status=503)
    workflow = work(enter(submission))
    assert (workflow.status, workflow.wake_on, workflow.retry_count) == ("PENDING", ["account.created"], 0)
    sandbox.clear_faults()
    sandbox.account(**submission.account or {})
    tell(submission)
    assert work(workflow).status == "COMPLETE"


def test_it_finds_the_account_by_itself_when_nobody_tells(sandbox: SandboxProcess) -> None:
    submission = sample(Kind.LINKED, seed=402)
    workflow = enter(submission)
    for _ in range(3):
        workflow = again(workflow)
        assert (workflow.status, workflow.retry_count) == ("PENDING", 0), "a look is not a failure"
    sandbox.account(**submission.account or {})
    assert again(workflow).status == "COMPLETE"
    assert Wait.objects.get().outcome == "found"


def test_told_before_the_account_can_be_seen_it_tries_again_and_does_not_run_in_circles(
    sandbox: SandboxProcess,
) -> None:
    submission = sample(Kind.LINKED, seed=403)
    tell(submission)
    workflow = work(enter(submission))
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)
    assert worker().process_next() is False
    sandbox.account(**submission.account or {})
    assert again(workflow).status == "COMPLETE"


def test_after_two_days_without_it_is_failed(sandbox: SandboxProcess) -> None:
    workflow = work(enter(sample(Kind.LINKED, seed=404)))
    expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "linked_account_missing")
