"""ONCE: a call that changes something elsewhere is made once, and what nobody knows is found out."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests import engine
from tests.engine import (
    again,
    define,
    expire,
    outcomes,
    seconds_until_due,
    submit,
    terminate,
    work,
    worker,
)
from tests.workflows.downstream import Downstream, call_step, fail_at_first, state, unknown
from workflows import operations
from workflows.definition import Retry, Step
from workflows.effects import ledger
from workflows.errors import ClaimLost, RetryableStepError, StepError, UnknownOutcome
from workflows.models import Attempt, Effect, ManualTask, Workflow
from workflows.state import attempt_log

pytestmark = engine.ENGINE


def test_what_is_done_is_not_called_again_and_its_result_is_merged(service: Downstream) -> None:
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    effect = Effect.objects.get()
    assert (effect.state, effect.result, effect.generation) == ("done", {"number": 1}, 1)
    assert effect.idempotency_key == service.calls[0] == f"{workflow.key}:call"
    workflow = again(workflow)
    assert workflow.status == "COMPLETE"
    assert workflow.context["number"] == 1
    assert len(service.calls) == 1
    assert outcomes(workflow)["call"] == "recorded"


def test_the_intent_is_committed_before_the_call() -> None:
    seen = []

    def look(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        with engine.another_connection() as other:
            seen.append(other.execute("SELECT state FROM workflows_effect").fetchall())
        return {}

    define([Step(look, once=True)])
    work(submit())
    assert seen == [[("intent",)]]


def test_it_is_written_before_any_step_that_is_not_once() -> None:
    seen = []

    def look(*, workflow: Workflow, context: Any) -> None:
        with engine.another_connection() as other:
            seen.append(other.execute("SELECT state FROM workflows_effect ORDER BY id").fetchall())

    one, two = Downstream(), Downstream()
    define([Step(one.call, once=True, name="one"), Step(two.call, once=True, name="two"), look])
    work(submit())
    assert seen == [[("done",), ("done",)]]


def test_a_step_that_did_not_apply_is_evaluated_again() -> None:
    applies = [False]

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any] | None:
        return {"number": 7} if applies[0] else None

    define([Step(call, once=True), fail_at_first])
    workflow = work(submit())
    assert state() == "skipped"
    assert outcomes(workflow)["call"] == "skipped"
    applies[0] = True
    assert again(workflow).context["number"] == 7
    assert state() == "done"


@pytest.mark.parametrize("error", [RetryableStepError(code="busy"), StepError("No.", code="refused")])
def test_a_refusal_is_not_done_and_is_called_again_under_the_same_key(service: Downstream, error: StepError) -> None:
    service.errors = [error]
    define([call_step(service)])
    workflow = work(submit())
    effect = Effect.objects.get()
    assert (effect.state, effect.error_code) == ("not_done", error.code)
    Workflow.objects.update(status="PENDING", completed_at=None)
    assert again(workflow).status == "COMPLETE"
    assert service.calls == [effect.idempotency_key] * 2


@pytest.mark.parametrize("error", [UnknownOutcome("no answer"), ValueError("not JSON"), SystemExit(1)])
def test_any_other_error_leaves_it_unknown(service: Downstream, error: BaseException) -> None:
    service.errors = [error]
    define([call_step(service)])
    workflow = work(submit())
    assert state() == "unknown"
    assert workflow.status == ("PENDING" if isinstance(error, UnknownOutcome) else "FAILED")


def test_a_lookup_that_finds_it_settles_it_without_a_call(service: Downstream) -> None:
    workflow = unknown(service, lookup=service.lookup)
    service.found = [{"number": 42}]
    workflow = again(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 42)
    assert len(service.calls) == 1
    assert Effect.objects.get().settled_by == "lookup"
    assert service.looked_up[0].idempotency_key == service.calls[0]


def test_that_it_is_too_early_to_tell_is_no_failure_of_the_step(service: Downstream) -> None:
    """The claim was lost in the call: the database's trouble, and the step has never failed."""
    service.found = [None, None, {"number": 7}]
    define([call_step(service, lookup=service.lookup, settle=60, retry=Retry(max_attempts=1))])
    workflow = submit()
    Effect.objects.create(
        workflow=workflow, step="call", state="intent", attempt=1, idempotency_key=f"{workflow.key}:call"
    )
    for _ in range(2):
        workflow = again(workflow)
        assert (workflow.status, workflow.last_error_code, workflow.retry_count) == ("PENDING", "unsettled", 0)
        assert (state(), seconds_until_due(workflow)) == ("intent", pytest.approx(60, abs=5))
    assert (again(workflow).status, service.calls) == ("COMPLETE", [])


@pytest.mark.parametrize("found_out", ["by a lookup", "by its key"])
def test_what_is_in_doubt_is_called_again_under_the_same_key(service: Downstream, found_out: str) -> None:
    """Not found in the end, or without a lookup, while the key is honoured."""
    policy = {"lookup": service.lookup, "settle": 0} if found_out == "by a lookup" else {"key_ttl": timedelta(hours=1)}
    workflow = unknown(service, **policy)
    service.found = [None]
    assert again(workflow).status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call"] * 2


def in_doubt(service: Downstream) -> tuple[Workflow, ManualTask, User]:
    workflow = again(unknown(service, settle=0))
    assert workflow.waiting_for.startswith("Unclear call: did “Call” happen?")
    task = ManualTask.objects.get()
    assert task.task_type == "effect_in_doubt"
    return workflow, task, User.objects.create_superuser("ada")


@pytest.mark.parametrize("in_a_thread", [False, True], ids=["", "in a thread of the step"])
def test_a_person_says_that_it_did_not_happen_and_it_gets_a_key_of_its_own(
    service: Downstream, in_a_thread: bool
) -> None:
    """Under the first one's key the service would answer from memory: with a charge that was refunded since."""
    workflow, task, ada = in_doubt(service)

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any] | None:
        call = partial(service.call, workflow=workflow, context=context)
        return engine.elsewhere(call) if in_a_thread else call()

    define([Step(call, once=True, settle=0)])
    operations.reject(task.pk, user=ada, reason="Not there.")
    workflow = work(workflow)
    assert workflow.status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call", f"{workflow.key}:call:2"]
    assert list(Effect.objects.order_by("generation").values_list("state", flat=True)) == ["not_done", "done"]


def test_a_retry_asks_again_what_nobody_has_said_in_time() -> None:
    workflow, _, ada = in_doubt(Downstream())
    expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "effect_in_doubt")
    operations.retry(workflow.pk, user=ada)
    assert work(workflow).waiting_for.startswith("Unclear call: did “Call” happen?")
    operations.approve(ManualTask.objects.open().get().pk, user=ada, answer={"number": 9})
    assert work(workflow).status == "COMPLETE"


@pytest.mark.parametrize("order", [("old", "new", "newest"), ("newest", "old", "new")], ids="-".join)
def test_releases_that_take_turns_make_the_call_of_a_renamed_step_once(
    service: Downstream, order: tuple[str, ...]
) -> None:
    """Whichever comes first: the older ones have never heard of the new names."""
    names = {"old": ("call",), "new": ("call_anew", "call"), "newest": ("call_later", "call", "call_anew")}
    workflow = submit()
    for release in order:
        name, *formerly = names[release]
        define([Step(service.call, once=True, name=name, formerly=formerly), fail_twice])
        workflow = again(workflow)
    assert workflow.status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call"]
    assert Effect.objects.get().step == "call"


def fail_twice(*, workflow: Workflow, context: Any) -> None:
    if Attempt.objects.filter(workflow=workflow).count() < 3:
        raise RetryableStepError


def test_a_field_recorded_by_another_release_is_ignored(service: Downstream) -> None:
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    Effect.objects.update(result={"number": 3, "of_the_next_release": 1})
    workflow = again(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 3)


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
def test_the_result_of_a_call_is_written_also_when_the_claim_is_lost(alias: str) -> None:
    calls = []

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        calls.append(1)
        if len(calls) == 1:
            terminate(alias)
        return {"number": 5}

    define([Step(call, once=True)])
    workflow = submit()
    this = worker()
    with pytest.raises((ClaimLost, Exception)):
        this.process_next()
    this.in_hand.close_lost()
    assert state() == "done"
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"
    assert work(workflow).context["number"] == 5
    assert calls == [1]


@pytest.mark.parametrize("how", ["call", "lookup"])
def test_a_late_result_does_not_overwrite_what_a_later_attempt_took_over_or_decided(
    service: Downstream, how: str
) -> None:
    service.found = [{"number": 1}]
    workflow = unknown(service, key_ttl=timedelta(hours=1), lookup=service.lookup if how == "lookup" else None)
    effect_then = Effect.objects.get()
    stopped = attempt_log.OpenAttempt(effect_then.attempt, 1, workflow.pk, "3", str(effect_then.attempt_token))
    of_the_stopped = ledger.Ledger(engine.DEFINITION, workflow, stopped)
    again(workflow)
    (effect,) = of_the_stopped.rows.latest()
    of_the_stopped.rows.record_outcome(effect, Effect.State.UNKNOWN)
    attempt_log.flush(stopped)
    assert (state(), Effect.objects.get().settled_by) == ("done", how)


def test_twenty_once_steps_make_one_commit_each_and_one_more(service: Downstream) -> None:
    """A DONE shares its statement with the next INTENT."""
    define([Step(service.call, once=True, name=f"step_{n}") for n in range(20)])
    submit()
    with engine.sent("attempt_log") as statements:
        worker().process_next()
    assert Effect.objects.filter(state="done").count() == 20
    assert len([sql for sql in statements if "workflows_effect" in sql and "SELECT id, step" not in sql]) == 21
