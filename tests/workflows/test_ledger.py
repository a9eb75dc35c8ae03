"""ONCE: a call that changes something elsewhere is made once, and what nobody knows is found out."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from time import sleep
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from pydantic import field_validator

from tests import engine
from tests.engine import define, expire, last_attempt, make_due, outcomes, submit, work, worker
from workflows import effect_rows, effects, failpoints, journal, ledger, operations, waits
from workflows.definition import Retry, Step
from workflows.errors import ClaimLost, NotAllowed, RetryableStepError, StepError, Suspend, UnknownOutcome
from workflows.models import Attempt, Effect, ManualTask, Signal, Workflow
from workflows.waits import wait_for_time

pytestmark = engine.ENGINE


class Downstream:
    """A service that remembers what it was asked, and fails as it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.errors: list[BaseException] = []
        self.answers: list[dict[str, Any] | None] = []  # instead of a number
        self.undone: list[str] = []
        self.undo_errors: list[BaseException] = []
        self.found: list[Mapping[str, Any] | None] = []
        self.looked_up: list[effects.KnownEffect] = []

    def call(self, *, workflow: Workflow, context: Any) -> dict[str, Any] | None:
        self.calls.append(effects.key_in_use(workflow))
        if self.errors:
            raise self.errors.pop(0)
        if self.answers:
            return self.answers.pop(0)
        return {"number": len(self.calls)}

    def lookup(self, *, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> Mapping[str, Any] | None:
        self.looked_up.append(effect)
        return self.found.pop(0)

    def undo(self, *, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> None:
        self.undone.append(effect.undo_key)
        if self.undo_errors:
            raise self.undo_errors.pop(0)


def call_step(service: Downstream, **policy: Any) -> Step:
    return Step(service.call, once=True, name="call", **policy)


def fail_at_first(*, workflow: Workflow, context: Any) -> None:
    if Attempt.objects.filter(workflow=workflow).count() == 1:
        raise RetryableStepError


def again(workflow: Workflow) -> Workflow:
    make_due(workflow)
    return work(workflow)


def state() -> str:
    return Effect.objects.latest("generation").state


def test_what_is_done_is_not_called_again_and_its_result_is_merged() -> None:
    service = Downstream()
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
def test_a_refusal_is_not_done_and_is_called_again_under_the_same_key(error: StepError) -> None:
    service = Downstream()
    service.errors = [error]
    define([call_step(service)])
    workflow = work(submit())
    effect = Effect.objects.get()
    assert (effect.state, effect.error_code) == ("not_done", error.code)
    Workflow.objects.update(status="PENDING", completed_at=None)
    assert again(workflow).status == "COMPLETE"
    assert service.calls == [effect.idempotency_key] * 2


@pytest.mark.parametrize("error", [UnknownOutcome("no answer"), ValueError("not JSON"), SystemExit(1)])
def test_any_other_error_leaves_it_unknown(error: BaseException) -> None:
    service = Downstream()
    service.errors = [error]
    define([call_step(service)])
    workflow = work(submit())
    assert state() == "unknown"
    assert workflow.status == ("PENDING" if isinstance(error, UnknownOutcome) else "FAILED")


def test_a_timeout_leaves_it_unknown_and_is_retried() -> None:
    def hang(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        while True:
            pass

    define([Step(hang, once=True, timeout=0.2)])
    workflow = work(submit())
    assert (state(), workflow.status, workflow.retry_count) == ("unknown", "PENDING", 1)
    assert workflow.last_error_class == "workflows.timeouts.StepTimeout"


def unknown(service: Downstream, **policy: Any) -> Workflow:
    """A workflow whose call timed out."""
    service.errors = [UnknownOutcome("no answer")]
    define([call_step(service, **policy)])
    return work(submit())


def test_a_lookup_that_finds_it_settles_it_without_a_call() -> None:
    service = Downstream()
    workflow = unknown(service, lookup=service.lookup)
    service.found = [{"number": 42}]
    workflow = again(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 42)
    assert len(service.calls) == 1
    assert Effect.objects.get().settled_by == "lookup"
    assert service.looked_up[0].idempotency_key == service.calls[0]


def test_not_found_counts_only_when_the_call_can_no_longer_be_on_its_way() -> None:
    service = Downstream()
    workflow = unknown(service, lookup=service.lookup, settle=60)
    service.found = [None]
    workflow = again(workflow)
    assert (workflow.status, workflow.last_error_code) == ("PENDING", "unsettled")
    assert len(service.calls) == 1
    wait = workflow.invisible_until - last_attempt(workflow).closed_at  # type: ignore[operator]
    assert timedelta(seconds=50) < wait < timedelta(seconds=61)


def test_that_it_is_too_early_to_tell_is_no_failure_of_the_step() -> None:
    """The claim was lost in the call: the database's trouble, and the step has never failed."""
    service = Downstream()
    service.found = [None, None, {"number": 7}]
    define([call_step(service, lookup=service.lookup, retry=Retry(max_attempts=1))])
    workflow = submit()
    Effect.objects.create(
        workflow=workflow, step="call", state="intent", attempt=1, idempotency_key=f"{workflow.key}:call"
    )
    for _ in range(2):
        workflow = again(workflow)
        assert (workflow.status, workflow.last_error_code) == ("PENDING", "unsettled")
    assert (again(workflow).status, service.calls) == ("COMPLETE", [])


def test_not_found_in_the_end_is_called_again_under_the_same_key() -> None:
    service = Downstream()
    workflow = unknown(service, lookup=service.lookup, settle=0)
    service.found = [None]
    assert again(workflow).status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call"] * 2


def test_without_a_lookup_it_is_repeated_while_the_key_is_honoured() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=timedelta(hours=1))
    assert again(workflow).status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call"] * 2


def test_a_key_that_is_no_longer_honoured_is_not_sent_again() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=timedelta(hours=1))
    past_its_key()
    workflow = again(workflow)
    assert workflow.waiting_for.startswith("Did call happen?")
    assert len(service.calls) == 1


def in_doubt(service: Downstream) -> tuple[Workflow, ManualTask, User]:
    workflow = again(unknown(service, settle=0))
    assert workflow.waiting_for.startswith("Did call happen?")
    task = ManualTask.objects.get()
    assert task.task_type == "effect_in_doubt"
    return workflow, task, User.objects.create_superuser("ada")


def test_a_person_is_not_asked_while_the_call_may_still_be_on_its_way() -> None:
    """Their no gives it a new key: the old one may not arrive after that."""
    workflow = again(unknown(Downstream(), settle=60))
    assert (workflow.status, workflow.last_error_code, workflow.waiting_for) == ("PENDING", "unsettled", "")
    assert not ManualTask.objects.exists()


def test_a_person_says_that_it_happened_and_with_what_result() -> None:
    service = Downstream()
    workflow, task, ada = in_doubt(service)
    operations.approve(task.pk, user=ada, reason="Seen in the ledger of the bank.", answer={"number": 9})
    workflow = work(workflow)
    assert (workflow.status, workflow.context["number"], len(service.calls)) == ("COMPLETE", 9, 1)
    assert Effect.objects.get().settled_by == "ada"


@pytest.mark.parametrize(
    ("answer", "why"),
    [({"numbr": 9}, "No step of test returns numbr"), ({"number": "nine"}, "could have returned this: number")],
)
def test_what_no_step_could_have_returned_is_not_taken_for_its_result(answer: dict[str, Any], why: str) -> None:
    """Recorded, it would fail every further run, and every undo."""
    workflow, task, ada = in_doubt(Downstream())
    with pytest.raises(NotAllowed, match=why):
        operations.approve(task.pk, user=ada, answer=answer)
    task.refresh_from_db()
    assert task.state == "open"
    operations.approve(task.pk, user=ada, answer={"number": 9})
    assert work(workflow).status == "COMPLETE"


def test_a_person_says_that_it_did_not_happen_and_it_gets_a_key_of_its_own() -> None:
    service = Downstream()
    workflow, task, ada = in_doubt(service)
    operations.reject(task.pk, user=ada, reason="Not there.")
    workflow = work(workflow)
    assert workflow.status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call", f"{workflow.key}:call:2"]
    assert list(Effect.objects.order_by("generation").values_list("state", flat=True)) == ["not_done", "done"]


def test_a_thread_of_the_step_is_given_the_key_of_its_generation() -> None:
    """Not the first one's, which the service answers from memory: with a charge that was refunded since."""
    service = Downstream()
    workflow, task, ada = in_doubt(service)

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        engine.elsewhere(lambda: service.call(workflow=workflow, context=context))
        return {}

    define([Step(call, once=True, settle=0)])
    operations.reject(task.pk, user=ada, reason="Not there.")
    work(workflow)
    assert service.calls == [f"{workflow.key}:call", f"{workflow.key}:call:2"]


def test_a_retry_asks_again_what_nobody_has_said_in_time() -> None:
    workflow, _, ada = in_doubt(Downstream())
    expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "effect_in_doubt")
    operations.retry(workflow.pk, user=ada)
    assert work(workflow).waiting_for.startswith("Did call happen?")
    operations.approve(ManualTask.objects.open().get().pk, user=ada, answer={"number": 9})
    assert work(workflow).status == "COMPLETE"


def test_a_renamed_step_keeps_its_effect_and_its_key() -> None:
    service = Downstream()
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    define([Step(service.call, once=True, name="call_anew", formerly=("call",)), fail_at_first])
    assert again(workflow).status == "COMPLETE"
    assert len(service.calls) == 1


@pytest.mark.parametrize("first", ["old", "new"])
def test_two_releases_side_by_side_make_the_call_of_a_renamed_step_once(first: str) -> None:
    """Whichever comes first: the older one has never heard of the new name."""
    service = Downstream()
    releases = {
        "old": [call_step(service), fail_at_first],
        "new": [Step(service.call, once=True, name="call_anew", formerly=("call", "call_later")), fail_at_first],
    }
    define(releases.pop(first))
    workflow = work(submit())
    define(*releases.values())
    assert again(workflow).status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call"]
    assert Effect.objects.get().step == "call"


def test_what_was_recorded_under_a_later_name_is_found_too() -> None:
    """As releases did before effects were recorded under the oldest one."""
    service = Downstream()
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    define([Step(service.call, once=True, name="call", formerly=("call_first",)), fail_at_first])
    assert again(workflow).status == "COMPLETE"
    assert len(service.calls) == 1


def test_a_field_recorded_by_another_release_is_ignored() -> None:
    service = Downstream()
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    Effect.objects.update(result={"number": 3, "of_the_next_release": 1})
    workflow = again(workflow)
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 3)


def test_a_once_step_may_not_wait() -> None:
    from workflows.waits import require_approval

    def ask(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        require_approval(workflow, "review", question="May it?", timeout=timedelta(hours=1))
        return {}

    define([Step(ask, once=True)])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert "may not wait" in workflow.last_error_message


def terminate(alias: str) -> None:
    pid = connections[alias].connection.info.backend_pid
    with engine.another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.parametrize("alias", ["default", "journal"])
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
    this._close_lost_attempt()
    assert state() == "done"
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"
    assert work(workflow).context["number"] == 5
    assert calls == [1]


def test_a_worker_that_lost_its_row_begins_no_further_call() -> None:
    """Stopped, say, and continued: the call in hand may finish, none is begun."""
    service = Downstream()

    def lose_it(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        terminate("default")
        return {}

    define([Step(lose_it, once=True), call_step(service)])
    submit()
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    assert service.calls == []
    assert not Effect.objects.filter(step="call").exists()


def test_a_late_result_does_not_overwrite_what_a_later_attempt_took_over() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=timedelta(hours=1))
    effect_then = Effect.objects.get()
    stopped = journal.OpenAttempt(effect_then.attempt, 1, workflow.pk, "3", str(effect_then.attempt_token))
    of_the_stopped = ledger.Ledger(engine.DEFINITION, workflow, stopped)
    again(workflow)
    (effect,) = of_the_stopped.rows.latest()
    of_the_stopped.rows.record_outcome(effect, Effect.State.UNKNOWN)
    journal.flush(stopped)
    assert state() == "done"


def test_twenty_once_steps_make_one_commit_each_and_one_more() -> None:
    """A DONE shares its statement with the next INTENT."""
    statements = []
    service = Downstream()
    define([Step(service.call, once=True, name=f"step_{n}") for n in range(20)])
    submit()

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        if "workflows_effect" in sql and "SELECT id, step" not in sql:
            statements.append(sql)
        return execute(sql, *rest)

    with connections["journal"].execute_wrapper(count):
        worker().process_next()
    assert Effect.objects.filter(state="done").count() == 20
    assert len(statements) == 21


# --- A repeat of a call in doubt ----------------------------------------------------------------------


def refuse(**said: Any) -> list[BaseException]:
    """What a repeat may meet: no connection, 503, 401. None of them knows of the first call."""
    return [
        RetryableStepError("unreachable", code="unreachable", base_delay=0, **said),
        StepError("refused", code="token_missing", **said),
    ]


def died_in_its_call(service: Downstream, **policy: Any) -> Workflow:
    """A workflow whose worker was killed in the call: nobody has written what came of it."""
    define([call_step(service, **policy)])
    workflow = submit()
    with failpoints.armed("after_call:call", die), pytest.raises(Died):
        worker().process_next()
    connections.close_all()
    return workflow


class Died(ClaimLost):
    """As good as SIGKILL: nothing is written."""


def die() -> None:
    raise Died


IN_DOUBT = [unknown, died_in_its_call]
KEY_TTL = timedelta(hours=1)


@pytest.mark.parametrize("doubtful", IN_DOUBT)
@pytest.mark.parametrize("error", refuse())
def test_a_failed_repeat_leaves_the_call_in_doubt(doubtful: Callable[..., Workflow], error: BaseException) -> None:
    service = Downstream()
    workflow = doubtful(service, key_ttl=KEY_TTL)
    service.errors = [error]
    again(workflow)
    assert len(service.calls) == 2
    assert state() == "unknown"


@pytest.mark.parametrize("doubtful", IN_DOUBT)
def test_a_repeat_that_does_not_apply_leaves_the_call_in_doubt_and_is_a_failure(
    doubtful: Callable[..., Workflow],
) -> None:
    """COMPLETE would say that all is well, of a call that nobody knows of."""
    service = Downstream()
    workflow = doubtful(service, key_ttl=KEY_TTL)
    service.answers = [None]
    workflow = again(workflow)
    assert (state(), workflow.status, workflow.last_error_code) == ("unknown", "PENDING", "does_not_apply")


@pytest.mark.parametrize("happened", [True, False])
def test_after_a_repeat_that_does_not_apply_a_person_is_asked_and_it_is_repeated_no_more(happened: bool) -> None:
    """Else it would be repeated until it has failed too often, and nobody be asked."""
    service = Downstream()
    workflow = died_in_its_call(service, key_ttl=KEY_TTL, settle=0)
    service.answers = [None, None]
    again(workflow)
    assert again(workflow).waiting_for == "Did call happen?"
    assert len(service.calls) == 2
    task, ada = ManualTask.objects.get(), User.objects.create_superuser("ada")
    if happened:
        operations.approve(task.pk, user=ada, answer={"number": 1})
    else:
        operations.reject(task.pk, user=ada, reason="It had nothing to do.")
    assert work(workflow).status == "COMPLETE"
    assert (state(), len(service.calls)) == (("done", 2) if happened else ("skipped", 3))


def test_a_step_that_asks_for_its_key_and_returns_none_may_have_called() -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        effects.key_for(workflow, "call")

    define([Step(call, once=True, settle=0)])
    workflow = work(submit())
    assert (state(), workflow.status, workflow.last_error_code) == ("unknown", "PENDING", "none_after_key")
    assert again(workflow).waiting_for == "Did call happen?"


def test_nobody_is_asked_about_a_repeat_that_does_not_apply_while_the_call_may_be_on_its_way() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.answers = [None]
    again(workflow)
    assert again(workflow).last_error_code == "unsettled"
    assert not ManualTask.objects.exists()


def test_a_repeat_that_waits_leaves_the_call_in_doubt() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [Suspend("for ever", wake_on=[], until=timezone.now())]
    workflow = again(workflow)
    assert (state(), workflow.status) == ("unknown", "FAILED")


@pytest.mark.parametrize("error", refuse(answers_key=True))
def test_an_answer_to_the_key_itself_settles_the_doubt(error: BaseException) -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [error]
    again(workflow)
    assert state() == "not_done"


def test_an_unknown_outcome_settles_nothing_whatever_it_claims_to_answer() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [UnknownOutcome("no answer", answers_key=True)]
    again(workflow)
    assert state() == "unknown"


def test_after_a_failed_repeat_a_person_is_asked_once_the_key_is_forgotten() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [RetryableStepError("unreachable")]
    again(workflow)
    past_its_key()
    assert again(workflow).waiting_for.startswith("Did call happen?")
    assert len(service.calls) == 2


def test_after_a_failed_repeat_a_failure_still_undoes_what_may_have_happened() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL, undo=service.undo)
    service.errors = [StepError("refused", code="token_missing")]
    workflow = again(workflow)
    assert (workflow.status, workflow.compensating, workflow.last_error_code) == ("PENDING", True, "token_missing")
    past_its_key()
    workflow = again(workflow)
    operations.approve(ManualTask.objects.get().pk, user=User.objects.create_superuser("ada"), answer={"number": 1})
    assert work(workflow).status == "FAILED"
    assert service.undone == [f"{workflow.key}:call:undo"]


def past_its_key() -> None:
    with connections["journal"].cursor() as cursor:
        cursor.execute("UPDATE workflows_effect SET first_begun_at = first_begun_at - interval '2 hours'")
        cursor.execute("UPDATE workflows_effect SET begun_at = begun_at - interval '1 hour'")


# --- What was read may have changed -------------------------------------------------------------------


def telling_late(service: Downstream, sql: str, **policy: Any) -> list[Step]:
    """A list in which, on the second attempt and after its ledger was read, a stopped worker writes what it knows."""

    def tell_late(*, workflow: Workflow, context: Any) -> None:
        if Attempt.objects.filter(workflow=workflow).count() == 2:
            with engine.another_connection() as other:
                other.execute(sql, {"workflow": workflow.pk, "key": f"{workflow.key}:call"})

    return [Step(tell_late), call_step(service, **policy)]


TELL_DONE = """UPDATE workflows_effect SET state = 'done', result = '{"number": 1}' WHERE workflow_id = %(workflow)s"""
BEGIN_LATE = """INSERT INTO workflows_effect (workflow_id, step, state, idempotency_key, attempt)
                SELECT %(workflow)s, 'call', 'intent', %(key)s, 1 WHERE %(workflow)s > 0"""


@pytest.mark.parametrize(
    "error", [UnknownOutcome("no answer"), RetryableStepError("unreachable")], ids=["in doubt", "not done"]
)
def test_a_result_that_is_told_after_the_ledger_was_read_is_not_overwritten(error: BaseException) -> None:
    service = Downstream()
    service.errors = [error]
    define(telling_late(service, TELL_DONE, key_ttl=KEY_TTL))
    workflow = work(submit())
    make_due(workflow)
    with pytest.raises(ClaimLost, match="written its result since"):
        worker().process_next()
    connections.close_all()
    assert (state(), len(service.calls)) == ("done", 1)
    workflow = again(workflow)
    assert (workflow.status, workflow.context["number"], len(service.calls)) == ("COMPLETE", 1, 1)


def test_a_call_that_was_begun_after_the_ledger_was_read_is_not_begun_again() -> None:
    service = Downstream()
    define([fail_at_first, *telling_late(service, BEGIN_LATE, settle=0)])
    workflow = work(submit())
    make_due(workflow)
    with pytest.raises(ClaimLost, match="written its result since"):
        worker().process_next()
    connections.close_all()
    assert (state(), service.calls) == ("intent", [])
    assert again(workflow).waiting_for.startswith("Did call happen?")


def test_an_undo_that_was_told_after_the_ledger_was_read_is_not_begun_again() -> None:
    service = Downstream()
    service.undo_errors = [UnknownOutcome("no answer")]

    def tell_late(*, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> None:
        """The undo of the step after: it comes first."""
        with engine.another_connection() as other:
            sql = "UPDATE workflows_effect SET state = CASE WHEN undo THEN 'done' ELSE 'undone' END, result = '{}'"
            other.execute(sql + " WHERE step = 'call'")

    later = Step(service.call, once=True, name="later", undo=tell_late)
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    workflow = again(workflow)
    assert (workflow.compensating, service.undone) == (True, [f"{workflow.key}:call:undo"])
    # As if the later one had not been undone yet.
    Effect.objects.create(
        workflow=workflow, step="later", state="done", result={}, has_undo=True, attempt=1, idempotency_key="later"
    )
    define([call_step(service, undo=service.undo), later, fail])
    make_due(workflow)
    with pytest.raises(ClaimLost):
        worker().process_next()
    connections.close_all()
    assert len(service.undone) == 1
    assert again(workflow).status == "FAILED"
    assert len(service.undone) == 1


def fail(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="no")


@pytest.mark.parametrize("alias", ["default", "journal"])
def test_a_late_result_never_lands_on_the_effect_of_another_workflow(alias: str) -> None:
    """After a failover to a server that lacks the last moments, ids are given out again: of rows and of attempts."""
    other = submit()

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        with engine.another_connection() as another:
            another.execute(
                "UPDATE workflows_effect SET workflow_id = %s, attempt_token = gen_random_uuid()", [other.pk]
            )
        terminate(alias)
        return {"number": 5}

    define([Step(call, once=True)])
    Workflow.objects.filter(pk=other.pk).update(status="COMPLETE")
    submit()
    this = worker()
    with pytest.raises((ClaimLost, Exception)):
        this.process_next()
    this._close_lost_attempt()
    effect = Effect.objects.get()
    assert (effect.workflow_id, effect.state, effect.result) == (other.pk, "intent", None)


@pytest.mark.parametrize("lost", [False, True])
def test_a_late_undo_never_lands_on_the_effect_of_another_workflow(lost: bool) -> None:
    service = Downstream()

    def undo(*, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> None:
        if lost:
            with engine.another_connection() as another:
                another.execute("UPDATE workflows_effect SET attempt_token = gen_random_uuid()")
            terminate("default")

    define([call_step(service, undo=undo), fail])
    workflow = work(submit())
    make_due(workflow)
    this = worker()
    with contextlib.suppress(ClaimLost, Exception):
        this.process_next()
    this._close_lost_attempt()
    states = dict(Effect.objects.values_list("undo", "state"))
    assert states == ({False: "done", True: "intent"} if lost else {False: "undone", True: "done"})


# --- What a step makes of not knowing -----------------------------------------------------------------


def calls_and_waits(service: Downstream, swallow: bool) -> Step:
    """A step of a definition that nobody has tried: it charges first."""

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        service.call(workflow=workflow, context=context)
        with contextlib.suppress(BaseException if swallow else ArithmeticError):
            wait_for_time(workflow, "a moment", timedelta(hours=1))
        return {"number": 1}

    return Step(call, once=True, name="call", undo=service.undo, lookup=service.lookup)


@pytest.mark.parametrize("swallow", [False, True])
def test_what_a_step_has_called_before_it_waits_is_not_forgotten(swallow: bool) -> None:
    service = Downstream()
    service.found = [{"number": 1}]
    define([calls_and_waits(service, swallow)])
    workflow = work(submit())
    assert state() == "unknown"
    assert again(workflow).status == "FAILED"
    assert (service.calls, service.undone) == ([f"{workflow.key}:call"], [f"{workflow.key}:call:undo"])


@pytest.mark.parametrize("own", [StepError, RetryableStepError])
@pytest.mark.parametrize("inside", [True, False], ids=["in the handling", "after it"])
def test_an_error_of_its_own_for_a_timeout_says_nothing_of_the_call(own: type[StepError], inside: bool) -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        try:
            sleep(5)
        except BaseException:
            if inside:
                raise own("Broken.") from None
        raise own("Broken.")

    define([Step(call, once=True, timeout=0.1)])
    work(submit())
    assert state() == "unknown"


def test_a_timeout_that_a_step_swallows_does_not_say_that_it_did_not_apply() -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        with contextlib.suppress(BaseException):
            sleep(5)

    define([Step(call, once=True, timeout=0.1)])
    workflow = work(submit())
    assert (workflow.status, workflow.last_error_class, state()) == (
        "PENDING",
        "workflows.timeouts.StepTimeout",
        "unknown",
    )


def test_a_result_that_comes_late_is_a_result() -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        with contextlib.suppress(BaseException):
            sleep(5)
        return {"number": 1}

    define([Step(call, once=True, timeout=0.1)])
    assert (work(submit()).status, state()) == ("COMPLETE", "done")


@pytest.mark.parametrize(
    ("own", "then"),
    [
        (StepError("Broken."), "unknown"),
        (RetryableStepError("Busy."), "unknown"),
        (StepError("Declined.", answers_key=True), "not_done"),
    ],
)
def test_an_error_of_its_own_for_an_unknown_outcome_says_nothing_of_the_call(own: StepError, then: str) -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        try:
            raise UnknownOutcome("no answer")
        except RetryableStepError as error:
            raise own from error

    define([Step(call, once=True)])
    work(submit())
    assert state() == then


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "wait",
    [
        lambda workflow: waits.wait_for_time(workflow, "a\x00b", HOUR),
        lambda workflow: waits.wait_for_time(workflow, "pause", 3600),
        lambda workflow: waits.wait_for_signal(workflow, "paid", "cancel", timeout=HOUR),
        lambda workflow: waits.wait_for_children(workflow, "parts", [waits.Child("unheard of", {})], timeout=HOUR),
        lambda workflow: waits.require_approval(workflow, "review", question="May it?", team="nobody", timeout=HOUR),
        lambda workflow: waits.wait_for_signal(workflow, "paid", "paid", timeout=-HOUR),
    ],
    ids=["name", "time", "signal", "child", "team", "over"],
)
def test_a_wait_that_fails_says_nothing_of_the_call_before_it(wait: Callable[[Workflow], Any]) -> None:
    service = Downstream()

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        result = service.call(workflow=workflow, context=context)
        wait(workflow)
        return result

    define([Step(call, once=True)])
    work(submit())
    assert (len(service.calls), state()) == (1, "unknown")


# --- Steps that have left the list --------------------------------------------------------------------


def without(service: Downstream, *, retired: Sequence[str] = (), formerly: tuple[str, ...] = ()) -> None:
    """The next release: the step is called something else, and may say so."""
    define([Step(service.call, once=True, name="charge", formerly=formerly), fail_at_first], retired=retired)


def renamed(state: str = "done") -> tuple[Downstream, Workflow]:
    """A workflow whose call is on the ledger, under a name that the next release does not know."""
    service = Downstream()
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    if state != "done":
        Effect.objects.update(state=state, result=None)
    without(service)
    return service, again(workflow)


@pytest.mark.parametrize("state", ["done", "intent", "unknown"])
def test_beside_the_call_of_a_step_that_is_not_declared_no_new_call_is_begun(state: str) -> None:
    service, workflow = renamed(state)
    assert (workflow.status, len(service.calls), workflow.retry_count) == ("PENDING", 1, 0)
    assert workflow.waiting_for == "a release that declares the step call, whose call is on the ledger"
    soon = workflow.invisible_until - last_attempt(workflow).closed_at  # type: ignore[operator]
    assert soon < timedelta(minutes=1)
    assert not ManualTask.objects.exists()


@pytest.mark.parametrize("state", ["not_done", "skipped"])
def test_what_has_not_happened_holds_nothing_up(state: str) -> None:
    service, workflow = renamed(state)
    assert (workflow.status, len(service.calls)) == ("COMPLETE", 2)


@pytest.mark.parametrize("said", [{"formerly": ("call",)}, {"retired": ("call",)}])
def test_a_release_that_declares_the_step_goes_on(said: dict[str, Any]) -> None:
    service, workflow = renamed()
    without(service, **said)
    assert again(workflow).status == "COMPLETE"
    assert len(service.calls) == (1 if "formerly" in said else 2)


def test_a_step_that_did_not_apply_begins_no_call_beside_it() -> None:
    """The release before had both: the one that it left, and the one that has its place now."""
    service = Downstream()
    service.answers = [None]
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    Effect.objects.create(
        workflow=workflow, step="gone", state="done", result={}, attempt=1, idempotency_key=f"{workflow.key}:gone"
    )
    assert again(workflow).waiting_for.startswith("a release that declares the step gone")
    assert len(service.calls) == 1


def left_in_doubt(**definition: Any) -> Workflow:
    """A call that was broken off; the next release has no step `call`, and none that calls anything."""
    service = Downstream()
    service.errors = [UnknownOutcome("no answer")]
    define([call_step(service)])
    workflow = work(submit())
    Effect.objects.update(begun_at=workflow.created_at - timedelta(minutes=1))
    define([fail_at_first], **definition)
    return again(workflow)


@pytest.mark.parametrize("retired", [(), ("call",)])
@pytest.mark.parametrize("happened", [True, False])
def test_nothing_is_complete_while_a_call_of_a_step_that_left_the_list_is_in_doubt(
    retired: tuple[str, ...], happened: bool
) -> None:
    workflow = left_in_doubt(retired=retired)
    assert (workflow.status, workflow.waiting_for) == ("PENDING", "Did call happen?")
    task, ada = ManualTask.objects.get(), User.objects.create_superuser("ada")
    if happened:
        operations.approve(task.pk, user=ada, answer={})
    else:
        operations.reject(task.pk, user=ada, reason="The service knows nothing of it.")
    assert work(workflow).status == "COMPLETE"
    assert state() == ("done" if happened else "not_done")


def test_it_is_asked_about_beside_a_call_that_a_person_let_be_made() -> None:
    service, workflow = renamed("unknown")
    Effect.objects.update(begun_at=workflow.created_at - timedelta(minutes=1))
    engine.expire(workflow)
    work(workflow)
    operations.approve(ManualTask.objects.get().pk, user=User.objects.create_superuser("ada"))
    assert work(workflow).waiting_for == "Did call happen?"
    assert len(service.calls) == 2


def test_a_question_about_it_is_closed_by_a_release_that_finds_out() -> None:
    workflow = left_in_doubt()
    look = workflow.invisible_until - last_attempt(workflow).closed_at  # type: ignore[operator]
    assert look < timedelta(hours=1)
    service = Downstream()
    service.found = [{"number": 7}]
    define([call_step(service, lookup=service.lookup)])
    assert again(workflow).status == "COMPLETE"
    assert (ManualTask.objects.get().state, service.calls) == ("closed", [])


def test_it_is_not_asked_about_while_it_may_be_on_its_way() -> None:
    service = Downstream()
    service.errors = [UnknownOutcome("no answer")]
    define([call_step(service)])
    workflow = work(submit())
    define([fail_at_first])
    assert again(workflow).last_error_code == "unsettled"
    assert not ManualTask.objects.exists()


def test_of_a_best_effort_call_nobody_needs_to_know() -> None:
    service = Downstream()
    service.errors = [UnknownOutcome("no answer")]
    define([call_step(service, best_effort=True)])
    assert work(submit()).status == "COMPLETE"
    assert state() == "unknown"


def test_a_step_that_is_no_longer_once_is_not_declared() -> None:
    service = Downstream()
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    define([Step(service.call, once=True, name="charge"), Step(service.call, name="call")])
    assert again(workflow).waiting_for.startswith("a release that declares the step call")
    assert len(service.calls) == 1


def asked_whether_it_is_right() -> tuple[Downstream, Workflow, ManualTask, User]:
    service, workflow = renamed()
    engine.expire(workflow)
    workflow = work(workflow)
    task = ManualTask.objects.open().get()
    assert workflow.waiting_for == task.question == "Is it right that this release has no step call?"
    return service, workflow, task, User.objects.create_superuser("ada")


def test_after_an_hour_a_person_is_asked_and_the_workflow_goes_on_looking() -> None:
    service, workflow, task, _ = asked_whether_it_is_right()
    assert (task.task_type, len(service.calls)) == ("step_undeclared", 1)
    look = workflow.invisible_until - last_attempt(workflow).closed_at  # type: ignore[operator]
    assert look < timedelta(hours=1)
    without(service, formerly=("call",))
    assert again(workflow).status == "COMPLETE"
    task.refresh_from_db()
    assert (task.state, len(service.calls)) == ("closed", 1)


def test_a_person_says_that_it_is_right_and_the_new_call_is_made() -> None:
    service, workflow, task, ada = asked_whether_it_is_right()
    operations.approve(task.pk, user=ada)
    assert work(workflow).status == "COMPLETE"
    assert service.calls == [f"{workflow.key}:call", f"{workflow.key}:charge"]


def test_what_a_person_said_is_forgotten_once_the_step_is_declared_again() -> None:
    """The release was taken back; the next one that lacks the step is another question."""
    service, workflow, task, ada = asked_whether_it_is_right()
    operations.approve(task.pk, user=ada)
    define([fail, call_step(service)])  # it does not come as far as the step
    workflow = work(workflow)
    assert workflow.status == "FAILED"
    operations.retry(workflow.pk, user=ada)
    without(service)
    assert work(workflow).waiting_for.startswith("a release that declares the step call")
    engine.expire(workflow)
    assert work(workflow).waiting_for == task.question
    assert len(service.calls) == 1


def test_a_person_says_that_it_is_wrong_and_a_retry_asks_again() -> None:
    service, workflow, task, ada = asked_whether_it_is_right()
    operations.reject(task.pk, user=ada, reason="It was renamed.")
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code, len(service.calls)) == ("FAILED", "step_undeclared", 1)
    operations.retry(workflow.pk, user=ada)
    assert work(workflow).waiting_for == task.question
    assert len(service.calls) == 1


def test_a_question_that_nobody_answers_in_a_month_is_asked_again() -> None:
    service, workflow, task, _ = asked_whether_it_is_right()
    expire(workflow)
    assert work(workflow).waiting_for == task.question
    assert ManualTask.objects.open().get().pk != task.pk
    assert len(service.calls) == 1


def test_a_call_that_was_begun_before_is_repeated_beside_it() -> None:
    """It is in doubt, and found out by being repeated under its key. The new one would be under a name of its own."""
    service = Downstream()
    service.errors = [UnknownOutcome("no answer")]
    define([call_step(service, key_ttl=timedelta(days=1))])
    workflow = work(submit())
    Effect.objects.create(
        workflow=workflow, step="gone", state="done", result={}, attempt=1, idempotency_key=f"{workflow.key}:gone"
    )
    assert again(workflow).status == "COMPLETE"


def unreachable_and_then_renamed() -> tuple[Downstream, Workflow]:
    """The call was never sent under its old name; the next release has made it under the new one."""
    service = Downstream()
    service.errors = [RetryableStepError("unreachable")]
    define([call_step(service), fail_at_first])
    workflow = work(submit())
    define([Step(service.call, once=True, name="charge"), fail])
    assert again(workflow).status == "FAILED"
    operations.retry(workflow.pk, user=User.objects.create_superuser("ada"))
    return service, workflow


def test_the_release_before_does_not_make_the_call_that_its_successor_has_made() -> None:
    service, workflow = unreachable_and_then_renamed()
    define([call_step(service)])
    assert again(workflow).waiting_for.startswith("a release that declares the step charge")
    assert len(service.calls) == 2


@pytest.mark.parametrize("said", ["not_done", "skipped", "intent", "unknown"])
def test_of_a_step_that_says_its_names_too_late_what_has_happened_counts(said: str) -> None:
    service, workflow = unreachable_and_then_renamed()
    Effect.objects.filter(step="call").update(state=said)
    define([Step(service.call, once=True, name="charge", formerly=("call",))])
    workflow = again(workflow)
    assert len(service.calls) == 2
    if said in effects.IN_DOUBT:  # both calls may have happened
        assert workflow.last_error_code == "unsettled"
    else:
        assert workflow.status == "COMPLETE"


def test_of_a_step_that_says_its_names_too_late_a_doubt_counts_before_what_did_not_happen() -> None:
    service, workflow = unreachable_and_then_renamed()
    Effect.objects.filter(step="charge").update(state="unknown", result=None)
    define([Step(service.call, once=True, name="charge", formerly=("call",))])
    assert again(workflow).last_error_code == "unsettled"
    assert len(service.calls) == 2


def test_what_was_undone_is_not_done_again_beside_it() -> None:
    service = Downstream()
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    again(workflow)
    Effect.objects.create(
        workflow=workflow, step="gone", state="done", result={}, attempt=1, idempotency_key=f"{workflow.key}:gone"
    )
    operations.retry(workflow.pk, user=User.objects.create_superuser("ada"))
    assert again(workflow).waiting_for.startswith("a release that declares the step gone")
    assert len(service.calls) == 1


# --- What a person says of a call ---------------------------------------------------------------------


def paid(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    raise UnknownOutcome("no answer")


def in_question(**policy: Any) -> tuple[Workflow, ManualTask, User]:
    """A call of which a person is asked whether it happened."""
    define([Step(paid, **{"once": True, "settle": 0, "returns": ("number", "text", "key"), **policy})])
    workflow = again(work(submit()))
    return workflow, ManualTask.objects.get(), User.objects.create_superuser("ada")


KEY = "6f6d0c5e-4f0a-4b53-9d7e-0c6f1d2a3b4c"


def test_a_yes_holds_every_field_that_the_step_returns() -> None:
    workflow, task, ada = in_question()
    answer = {"number": 9, "text": "ch_9", "key": KEY}
    operations.approve(task.pk, user=ada, answer=answer)
    workflow = work(workflow)
    assert (workflow.status, Effect.objects.get().result) == ("COMPLETE", answer)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, r"say what paid returned \(number, text, key\)"),
        ([], r"say what paid returned"),
        ({}, "paid returned these too: number, text, key"),
        ({"number": 9, "text": "ch_9"}, "paid returned these too: key"),
        ({"number": None, "text": "ch_9", "key": KEY}, "paid returned these too: number"),
        ({"number": 9, "text": "  ", "key": KEY}, "paid returned these too: text"),
        ({"number": 9, "text": "ch_9", "key": KEY, "tags": []}, "paid does not return tags"),
        ({"number": "nine", "text": "ch_9", "key": KEY}, r"number \(int_parsing\)"),
        ({"number": 9, "text": "ch_9", "key": "k"}, r"key \(uuid_parsing\)"),
        ({"number": 9, "text": "ch\x00", "key": KEY}, "cannot be kept"),
        ({"number": 9, "text": object(), "key": KEY}, "cannot be kept"),
    ],
)
def test_a_yes_that_is_not_what_the_step_returns_is_refused(answer: Any, why: str) -> None:
    """Recorded, it would fail every further run, and every undo."""
    _, task, ada = in_question()
    with pytest.raises(NotAllowed, match=why):
        operations.approve(task.pk, user=ada, answer=answer)
    task.refresh_from_db()
    assert (task.state, Signal.objects.count(), state()) == ("open", 0, "unknown")


@pytest.mark.parametrize("answer", [None, [], "{}"])
@pytest.mark.parametrize("returns", [(), None])
def test_that_a_call_returned_nothing_has_to_be_said(answer: Any, returns: tuple[str, ...] | None) -> None:
    workflow, task, ada = in_question(returns=returns)
    with pytest.raises(NotAllowed, match=r"say what paid returned \(an object, {} if that was nothing\)"):
        operations.approve(task.pk, user=ada, answer=answer)
    operations.approve(task.pk, user=ada, answer={})
    assert work(workflow).status == "COMPLETE"


def test_what_the_context_refuses_is_refused_also_of_a_declared_field() -> None:
    """A validator that looks at the field is no part of its type."""

    class Strict(engine.Context):
        @field_validator("text")
        @classmethod
        def _lower(cls, text: str | None) -> str | None:
            if text and text != text.lower():
                raise ValueError("no capitals")
            return text

    _, task, ada = in_question(returns=("text",))
    engine.DEFINITION.context_class = Strict
    with pytest.raises(NotAllowed, match=r"could have returned this: text \(value_error\)"):
        operations.approve(task.pk, user=ada, answer={"text": "CH_9"})
    operations.approve(task.pk, user=ada, answer={"text": "ch_9"})


def test_a_release_that_does_not_know_the_type_takes_no_yes_but_a_no() -> None:
    """It could not say what the call returns."""
    workflow, task, ada = in_question()
    Workflow.objects.filter(pk=workflow.pk).update(workflow_type="of the next release")
    with pytest.raises(NotAllowed, match="does not know the type of the next release"):
        operations.approve(task.pk, user=ada, answer={"number": 9, "text": "ch_9", "key": KEY})
    operations.reject(task.pk, user=ada, reason="Not there.")


def test_a_step_that_has_left_the_list_is_answered_as_one_that_says_nothing() -> None:
    _, task, ada = in_question()
    define([fail_at_first])
    with pytest.raises(NotAllowed, match="No step of test returns numbr"):
        operations.approve(task.pk, user=ada, answer={"numbr": 9})
    operations.approve(task.pk, user=ada, answer={"number": 9})


def test_a_call_that_returns_something_else_than_it_says_has_happened_all_the_same() -> None:
    service = Downstream()
    define([call_step(service, returns=("text",)), fail_at_first])
    workflow = again(work(submit()))
    assert (workflow.status, workflow.context["number"], len(service.calls)) == ("COMPLETE", 1, 1)


# --- An undo in doubt -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", refuse())
def test_a_failed_repeat_leaves_an_undo_in_doubt(error: BaseException) -> None:
    """A person who is asked would else read that nothing was given back, and might let it stand."""
    service = Downstream()
    service.undo_errors = [UnknownOutcome("no answer"), error]
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    for _ in range(2):
        again(workflow)
    assert len(service.undone) == 2
    assert Effect.objects.get(undo=True).state == "unknown"
    assert again(workflow).status == "FAILED"


def test_an_undo_that_was_begun_after_its_state_was_read_is_not_begun_again() -> None:
    service = Downstream()
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    make_due(workflow)
    begin_late = """INSERT INTO workflows_effect (workflow_id, step, undo, state, idempotency_key, attempt)
                    SELECT %s, 'call', true, 'intent', 'late', 1"""

    def tell_late(execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        if sql.startswith("SELECT state FROM workflows_effect"):
            with engine.another_connection() as other:
                other.execute(begin_late, [workflow.pk])
        return found

    with connections["journal"].execute_wrapper(tell_late), pytest.raises(ClaimLost, match="before the undo was begun"):
        worker().process_next()
    connections.close_all()
    assert service.undone == []


def test_an_intent_that_was_long_on_its_way_to_the_disk_is_written_again_before_the_call() -> None:
    """Else the next worker might believe that the call can no longer be on its way, and it is only about to be made."""
    service = Downstream()
    define([call_step(service)])
    workflow = submit()
    delays = [effect_rows.MAX_INTENT_SECONDS + 0.1]

    def stall(execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        if "INSERT INTO workflows_effect AS e" in sql and delays:
            sleep(delays.pop())
            terminate("default")
        return found

    with connections["journal"].execute_wrapper(stall), pytest.raises(ClaimLost):
        worker().process_next()
    assert (state(), service.calls, workflow.status) == ("intent", [], "PENDING")


def test_that_a_repeat_does_not_apply_is_no_failure_of_the_step() -> None:
    """Failed for good, nobody would be asked; and with a long back-off, not for hours."""
    service = Downstream()
    workflow = died_in_its_call(service, key_ttl=KEY_TTL, settle=0, retry=Retry(max_attempts=1, base_delay=3600))
    service.answers = [None]
    make_due(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("PENDING", "does_not_apply")
    assert workflow.invisible_until - last_attempt(workflow).closed_at < timedelta(seconds=1)  # type: ignore[operator]
