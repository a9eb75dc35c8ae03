"""Deferred steps: a best-effort step that was let go is done later; its workflow stays COMPLETE."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests import engine
from tests.engine import (
    another_connection,
    define,
    do_maintenance,
    elsewhere,
    kinds,
    last_attempt,
    make_due,
    submit,
    work,
    worker,
)
from tests.workflows.cancelling import BY_PHONE
from tests.workflows.features.outages.services import Downstream, open_circuit, trial_is_due
from tests.workflows.letting_go import HOUR, LATER, follow_up
from workflows.definition import Step
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS
from workflows.errors import RetryableStepError, StepError, UnknownOutcome
from workflows.features.deferred_steps import source as deferred_steps
from workflows.features.deferred_steps.source import MAX_TRIES
from workflows.models import Attempt, Effect, Event, FollowUp, Workflow
from workflows.signals import store

pytestmark = engine.ENGINE


@pytest.fixture
def messages() -> Downstream:
    return Downstream("messages")


def confirm_with(service: Any, **policy: Any) -> Step:
    usual = {"best_effort": True, "once": True, "key_ttl": HOUR, "name": "confirm", "follow_up": LATER}
    return Step(service.step, **{**usual, **policy})


def let_go(service: Downstream, state: str = "down") -> Workflow:
    """A COMPLETE workflow whose confirmation was let go."""
    service.state = state
    define([confirm_with(service)])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    return workflow


def test_what_was_let_go_is_done_later_once(messages: Downstream) -> None:
    workflow = let_go(messages)
    row = FollowUp.objects.get()
    assert (row.workflow_id, row.step, row.queue) == (workflow.pk, "confirm", "default")
    assert row.due_at
    assert 40 < (row.due_at - timezone.now()).total_seconds() < 80
    assert worker().process_from_sources() is False, "its time has not come"
    with transaction.atomic():
        assert deferred_steps.claim_next("default") is None
    messages.state = "well"
    assert follow_up()
    assert not FollowUp.objects.exists()
    assert Effect.objects.get().state == "done"
    assert kinds(workflow) == ["best_effort_failed", "completed", "followed_up"]
    assert last_attempt(workflow).outcome == "followed_up"
    assert follow_up() is False


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.")


@pytest.mark.parametrize(
    ("state", "policy", "then", "status"),
    [
        ("refusing", {}, [], "COMPLETE"),
        ("down", {"follow_up": None}, [], "COMPLETE"),
        ("down", {}, [fail], "FAILED"),
    ],
    ids=["what is refused", "a step that does not ask for it", "a workflow that fails"],
)
def test_nothing_else_is_followed_up(
    messages: Downstream, state: str, policy: dict[str, Any], then: list[Any], status: str
) -> None:
    messages.state = state
    define([confirm_with(messages, **policy), *then])
    assert work(submit()).status == status
    assert not FollowUp.objects.exists()


def test_a_call_in_doubt_that_does_not_apply_any_more_is_not_followed_up() -> None:
    """As one whose worker died before it had found that it does not apply: no later try finds out more."""
    attempts = []

    def confirm(*, workflow: Workflow, context: Any) -> None:
        attempts.append(workflow.pk)
        if len(attempts) == 1:
            raise UnknownOutcome("Silence.")

    def come_again(*, workflow: Workflow, context: Any) -> None:
        if len(attempts) == 1:
            raise RetryableStepError

    define([Step(confirm, best_effort=True, once=True, key_ttl=HOUR, follow_up=LATER), come_again])
    workflow = work(submit())
    make_due(workflow)
    assert work(workflow).status == "COMPLETE"
    assert Event.objects.get(kind="best_effort_failed").detail["error_code"] == "does_not_apply"
    assert Effect.objects.get().state == "unknown"
    assert not FollowUp.objects.exists()


def test_no_earlier_step_is_run_and_the_context_is_what_was_recorded(messages: Downstream) -> None:
    ran: list[Any] = []

    def number(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        ran.append("number")
        return {"number": 7}

    def confirm(*, workflow: Workflow, context: Any) -> None:
        ran.append(context.number)
        messages.call(workflow)

    messages.state = "down"
    define([number, Step(confirm, best_effort=True, follow_up=LATER)])
    work(submit())
    messages.state = "well"
    assert follow_up()
    assert ran == ["number", 7, 7]


def test_it_fails_as_often_as_its_policy_allows_and_is_given_up(messages: Downstream) -> None:
    workflow = let_go(messages, "unreadable")
    follow_up()
    row = FollowUp.objects.get()
    assert (row.failures, row.unavailable, row.tries) == (1, 0, 0)
    assert row.due_at
    assert row.due_at > timezone.now() + timedelta(seconds=30)
    follow_up()
    follow_up()
    assert FollowUp.objects.get().due_at is None
    assert kinds(workflow)[2:] == ["follow_up_failed", "follow_up_failed", "follow_up_given_up"]
    assert follow_up() is False
    assert Event.objects.filter(kind="follow_up_given_up").get().detail["error_code"] == "unreadable"


def test_a_request_to_cancel_that_came_too_late_does_not_end_it(messages: Downstream) -> None:
    """It came as the workflow was completing, and maintenance has not said yet that it was too late."""
    workflow = let_go(messages)
    late = {"source": "console", "dedupe_key": "late", "workflow_id": workflow.pk}
    store.store(**late, name=store.CANCEL_SIGNAL, payload={"by": "ada", "reason": BY_PHONE})
    messages.state = "well"
    assert follow_up()
    assert not FollowUp.objects.exists(), Event.objects.filter(kind="follow_up_given_up").values("detail")
    do_maintenance()
    assert kinds(workflow)[-2:] == ["followed_up", "cancel_too_late"]


def test_an_outage_has_its_patience_here_too(messages: Downstream) -> None:
    let_go(messages)
    for _ in range(4):
        follow_up()
    row = FollowUp.objects.get()
    assert (row.failures, row.unavailable) == (0, 4)
    FollowUp.objects.update(unavailable=OUTAGE_ATTEMPTS - 1)
    follow_up()
    assert FollowUp.objects.get().due_at is None


def test_while_the_circuit_is_open_it_is_rescheduled_past_the_next_trial_and_counts_nothing(
    messages: Downstream,
) -> None:
    let_go(messages)
    calls = len(messages.calls)
    circuit = open_circuit("messages", trial_in=40)
    follow_up()
    row = FollowUp.objects.get()
    assert row.due_at
    assert circuit.retry_at
    assert row.due_at > circuit.retry_at
    assert (row.failures, row.unavailable, len(messages.calls)) == (0, 0, calls)
    trial_is_due("messages")
    messages.state = "well"
    follow_up()
    assert not FollowUp.objects.exists(), "it takes the lease, and tries it"


def test_what_no_worker_comes_to_the_end_of_is_tried_later_each_time_and_given_up(
    messages: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException):
        pass

    def die(*args: Any, **options: Any) -> Any:
        raise Died

    workflow = let_go(messages)
    rests = []
    with monkeypatch.context() as patched:
        patched.setattr("workflows.features.deferred_steps.source.run_in_savepoint", die)
        for _ in range(MAX_TRIES):
            with pytest.raises(Died):
                follow_up()
            due = FollowUp.objects.get().due_at
            assert due
            rests.append((due - timezone.now()).total_seconds())
    assert [round(rest, -1) for rest in rests[:4]] == [60, 120, 240, 480]
    assert max(rests) <= 3600
    follow_up()
    assert FollowUp.objects.get().due_at is None
    assert kinds(workflow)[-1] == "follow_up_given_up"
    assert Event.objects.filter(kind="follow_up_given_up").get().detail["error_code"] == "poison"
    assert not Attempt.objects.filter(outcome="").exists()


def test_a_worker_that_stops_gives_it_back(messages: Downstream) -> None:
    let_go(messages)
    FollowUp.objects.update(due_at=timezone.now())
    assert worker(must_stop=lambda: True).process_from_sources()
    row = FollowUp.objects.get()
    assert row.tries == 0
    assert row.due_at
    assert row.due_at <= timezone.now()


def test_one_whose_workflow_another_holds_is_passed_over(messages: Downstream) -> None:
    first, second = let_go(messages), work(submit())
    messages.state = "well"
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [first.pk])
        assert follow_up()
    assert FollowUp.objects.get().workflow_id == first.pk
    assert messages.calls[-1] == second.pk


def test_one_that_another_worker_has_just_decided_is_not_started(
    messages: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go(messages)
    claim = deferred_steps.claim_next

    def claim_late(*arguments: Any) -> Any:
        found = claim(*arguments)
        elsewhere(FollowUp.objects.all().delete)
        return found

    monkeypatch.setattr("workflows.features.deferred_steps.source.claim_next", claim_late)
    calls = len(messages.calls)
    assert follow_up() is False
    assert len(messages.calls) == calls


def test_one_whose_workflow_is_undone_all_the_same_waits_until_it_is_complete(messages: Downstream) -> None:
    workflow = let_go(messages)
    Workflow.objects.filter(pk=workflow.pk).update(status="FAILED")
    assert not follow_up()


def test_one_of_a_type_that_this_release_does_not_know_is_left_to_another(messages: Downstream) -> None:
    workflow = let_go(messages)
    Workflow.objects.filter(pk=workflow.pk).update(workflow_type="of tomorrow")
    assert not follow_up()
    assert FollowUp.objects.get().tries == 0


def test_a_step_that_has_left_the_list_for_good_is_given_up(messages: Downstream) -> None:
    let_go(messages)
    define([Step(messages.step, name="another")])
    for _ in range(10):
        follow_up()
    assert FollowUp.objects.get().due_at is None


def test_a_worker_in_a_backlog_does_one_in_ten_turns(messages: Downstream) -> None:
    let_go(messages)
    messages.state = "well"
    FollowUp.objects.update(due_at=timezone.now())
    for _ in range(12):
        submit()
    this = worker()
    done_at = next(turn for turn in range(1, 13) if this._take_up(thorough=True) and not FollowUp.objects.exists())
    assert done_at == 10


def test_a_claim_that_has_ended_starts_nothing(messages: Downstream) -> None:
    let_go(messages)
    FollowUp.objects.update(due_at=timezone.now())
    with transaction.atomic():
        claim = deferred_steps.claim_next("default")
    assert claim
    assert deferred_steps.begin(*claim) is None
    assert FollowUp.objects.get().tries == 0


def test_it_is_in_the_trace_of_its_workflow() -> None:
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from workflows.features.traces.spans import Spans

    def confirm(*, workflow: Workflow, context: engine.Context) -> None:
        if not FollowUp.objects.exists():
            raise RetryableStepError("Not now.", max_attempts=1)

    define([Step(confirm, best_effort=True, follow_up=LATER)])
    submit(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    exporter = memory.InMemorySpanExporter()
    spans = Spans(exporter)
    this = worker(onlookers=[spans])
    assert this.process_next()
    FollowUp.objects.update(due_at=FollowUp.objects.get().created_at)
    assert this.process_from_sources()
    spans.end()
    ended = exporter.get_finished_spans()
    (submission,) = [span for span in ended if span.name == "submission test"]
    first, later = [span for span in ended if span.name == "attempt test"]
    assert later.attributes["onramp.outcome"] == Attempt.Outcome.FOLLOWED_UP
    assert {each.parent.span_id for each in (first, later)} == {submission.context.span_id}
    assert later.context.trace_id == 0x4BF92F3577B34DA6A3CE929D0E0E4736
