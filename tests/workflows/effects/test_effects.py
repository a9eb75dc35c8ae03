"""The conditions and the orders of the ledger, one by one: times, generations, and what is written before what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from tests import engine
from tests.engine import again, define, make_due, submit, work, worker
from tests.workflows.downstream import Downstream, call_step, fail_at_first
from tests.workflows.undoing import ada, fail, states
from workflows import operations
from workflows.definition import Step
from workflows.effects import KnownEffect
from workflows.effects.rows import EffectRows
from workflows.errors import ClaimLost, RetryableStepError, UnknownOutcome
from workflows.models import Effect, ManualTask, Workflow
from workflows.signals import store
from workflows.state import attempt_log

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)


def reserve(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {}


def release(*, workflow: Workflow, context: Any, effect: Any) -> None: ...


def age(*columns: str, by: timedelta) -> None:
    """Let these times of all effects be further back."""
    Effect.objects.update(**{column: F(column) - by for column in columns})


# --- Times --------------------------------------------------------------------------------------------


def test_a_keys_time_runs_from_its_first_call(service: Downstream) -> None:
    """The downstream forgets a key so long after it has first heard it, however often it is repeated."""
    service.errors = [UnknownOutcome(), UnknownOutcome()]
    define([call_step(service, key_ttl=HOUR, settle=0)])
    workflow = work(submit())
    age("begun_at", "first_begun_at", by=HOUR * 0.8)
    workflow = again(workflow)
    age("begun_at", "first_begun_at", by=HOUR * 0.4)
    assert again(workflow).waiting_for.startswith("Unclear call: did “Call” happen?")
    assert len(service.calls) == 2


def test_a_keys_time_does_not_run_before_the_step_applies(service: Downstream) -> None:
    service.answers = [None]
    define([call_step(service, key_ttl=HOUR, settle=0), fail_at_first])
    workflow = work(submit())
    assert states() == {"call": "skipped"}
    age("begun_at", "first_begun_at", by=2 * HOUR)
    service.errors = [UnknownOutcome()]
    workflow = again(workflow)
    assert again(workflow).status == "COMPLETE"
    assert len(service.calls) == 1 + 2, "repeated under the key that was first sent just now"


def test_a_call_that_is_repeated_may_be_on_its_way_as_long_as_the_first_one(service: Downstream) -> None:
    service.errors = [UnknownOutcome(), UnknownOutcome()]
    define([call_step(service, key_ttl=HOUR, settle=60)])
    workflow = work(submit())
    age("begun_at", "first_begun_at", by=HOUR * 0.8)
    workflow = again(workflow)
    age("first_begun_at", by=HOUR * 0.4)
    workflow = again(workflow)
    assert (workflow.last_error_code, ManualTask.objects.count()) == ("unsettled", 0)


# --- What another worker, or another release, has left --------------------------------------------------


def test_a_late_undo_does_not_overwrite_what_a_later_attempt_took_over(service: Downstream) -> None:
    """Stopped in the undo that it had started; the next worker has started it again, and cannot know the outcome."""
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    service.undo_errors = [UnknownOutcome()]
    workflow = work(workflow)
    effect, undo = Effect.objects.order_by("undo")
    stopped = attempt_log.OpenAttempt(undo.attempt - 1, 1, workflow.pk, claim_xid="3")
    in_its_hands = KnownEffect(
        undo.pk, "call", 1, "intent", undo.idempotency_key, None, 0.0, 0.0, 0.0, undoes=effect.pk
    )
    EffectRows(workflow, stopped).record_outcome(in_its_hands, Effect.State.DONE, result={})
    attempt_log.flush(stopped)
    assert states() == {"call": "done", "undo call": "unknown"}


def test_a_call_that_had_not_happened_is_undone_as_this_release_says(service: Downstream) -> None:
    """It has no undo any more: the release before had, and its call was refused."""
    service.errors = [RetryableStepError()]
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    define([call_step(service), fail])
    workflow = again(workflow)
    assert (workflow.status, states()) == ("FAILED", {"call": "done"})


def test_the_latest_generation_counts_wherever_its_row_lies(service: Downstream) -> None:
    service.errors = [UnknownOutcome()]
    define([call_step(service, settle=0), fail])
    workflow = again(work(submit()))
    operations.reject(ManualTask.objects.get().pk, user=ada(), reason="Not there.")
    work(workflow)
    Effect.objects.filter(generation=1).update(error_code="moved to the end of the table")
    define([call_step(service, settle=0)])
    operations.retry(workflow.pk, user=ada())
    try:
        with connections["attempt_log"].cursor() as cursor:
            cursor.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
        assert work(workflow).status == "COMPLETE"
    finally:
        connections["attempt_log"].close()
    assert len(service.calls) == 2, "once under each key"


def test_a_request_to_cancel_does_not_keep_an_undo_from_being_called(service: Downstream) -> None:
    """It came as the workflow failed by itself, and nobody has put it aside yet."""
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    store.store(source="console", dedupe_key="1", name="cancel", workflow_id=workflow.pk, payload={"by": "ada"})
    assert work(workflow).status == "FAILED"
    assert (len(service.calls), len(service.undone)) == (1, 1)


# --- What is written before what ------------------------------------------------------------------------


def test_what_is_deferred_is_written_before_something_else_is_deferred() -> None:
    workflow = submit()
    events = "INSERT INTO workflows_event (workflow_id, kind) VALUES (%s, %s)"
    attempt = attempt_log.OpenAttempt(1, 1, workflow.pk, claim_xid="3")
    for kind in ("waiting", "put_back"):
        attempt_log.hold_back(attempt, events, [workflow.pk, kind])
    attempt_log.flush(attempt)
    assert engine.kinds(workflow) == ["waiting", "put_back"]


def test_a_result_that_could_not_be_written_with_the_next_intent_is_written_by_the_recovery(
    service: Downstream,
) -> None:
    define([call_step(service), Step(reserve, once=True)])
    submit()
    this = worker()
    lost = engine.at("WITH before AS", lambda: engine.terminate("attempt_log"), alias="attempt_log")
    with lost, pytest.raises(ClaimLost):
        this.process_next()
    assert states() == {"call": "intent"}
    this.in_hand.close_lost()
    assert states() == {"call": "done"}


@pytest.mark.parametrize("lookup", [True, False], ids=["looked up", "asked about"])
def test_what_came_of_a_call_is_written_before_the_next_one_is_found_out(service: Downstream, lookup: bool) -> None:
    """A lookup may be long, and its worker be killed in it: what is known by then stays known."""
    policy: dict[str, Any] = {"lookup": service.lookup} if lookup else {}
    service.errors, service.found = [UnknownOutcome()], [{"number": 7}]
    define([call_step(service, settle=0, **policy)])
    workflow = work(submit())
    define([Step(reserve, once=True), call_step(service, settle=0, **policy)])
    make_due(workflow)
    next_one = "SELECT pg_xact_status" if lookup else "INSERT INTO workflows_wait"
    with engine.at(next_one, states, alias="attempt_log") as found:
        work(workflow)
    assert found == [{"call": "unknown", "reserve": "done"}]


def test_what_came_of_an_undo_is_written_before_its_failure_is_counted(service: Downstream) -> None:
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    service.undo_errors = [RetryableStepError()]
    with engine.at("SET undo_failures = ", states, alias="attempt_log") as found:
        work(workflow)
    assert found == [{"call": "done", "undo call": "not_done"}]


def test_an_undo_is_written_before_a_person_is_asked_about_the_next_one(service: Downstream) -> None:
    define([call_step(service, undo=service.undo), Step(reserve, once=True, undo=release), fail])
    workflow = work(submit())
    Effect.objects.filter(step="call").update(undo_failures=3)
    with engine.at("INSERT INTO workflows_wait", states, alias="attempt_log") as found:
        workflow = work(workflow)
    assert workflow.waiting_for.startswith("The reversal of “Call” failed 3 times")
    assert found == [{"call": "done", "reserve": "undone", "undo reserve": "done"}]
