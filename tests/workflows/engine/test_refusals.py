"""What the database refuses the engine says nothing about a step: nothing is decided, and the row is rescheduled."""

from collections import UserDict
from contextlib import suppress
from typing import Annotated, Any

import pytest
from django.contrib.auth.models import Group
from django.db import Error, connection, connections
from pydantic import AfterValidator, BaseModel

from tests import engine
from tests.engine import (
    a_column_ahead,
    define,
    due_again,
    kinds,
    last_attempt,
    seconds_until_due,
    submit,
    terminate,
    work,
    worker,
)
from tests.workflows.refusing import CALLED, ask, assert_put_back, call, lose, pause, refused, say_one
from workflows.definition import Step
from workflows.effects import KnownEffect
from workflows.engine import poison, worker_boundary
from workflows.errors import ClaimLost, RetryableStepError, StepError
from workflows.models import Attempt, Effect, Wait, Workflow
from workflows.postgres.statements import execute
from workflows.signals import store

pytestmark = [*engine.ENGINE, pytest.mark.usefixtures("nothing_called")]


# --- The attempt log ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "sqlstate"),
    [(Step(call, once=True), "42703"), (pause, "53100"), (ask, "25006")],
)
def test_whatever_the_attempt_log_raises_the_claim_is_lost(step: Any, sqlstate: str) -> None:
    define([say_one, step, say_one])
    workflow = submit()
    with refused(
        "INSERT INTO workflows_effect" if isinstance(step, Step) else "workflows_wait", "attempt_log", sqlstate
    ):
        workflow = lose(workflow)
    assert_put_back(workflow)
    assert CALLED == []
    assert not Effect.objects.exists()
    assert not Wait.objects.exists()
    if step is not ask:
        assert work(workflow).status == "COMPLETE"


@pytest.mark.parametrize(
    ("table", "best_effort"), [("workflows_effect", True), ("workflows_wait", True), ("workflows_manualtask", False)]
)
def test_a_column_that_is_ahead_of_this_release_fails_nothing(table: str, best_effort: bool) -> None:
    step = Step(call, once=True) if table == "workflows_effect" else Step(ask)
    define([Step(step.function, name="step", once=step.once, best_effort=best_effort)])
    workflow = submit()
    with a_column_ahead(table):
        workflow = lose(workflow)
    assert_put_back(workflow)
    assert work(workflow).status == ("COMPLETE" if step.once else "PENDING")
    assert last_attempt(workflow).outcome == ("complete" if step.once else "waiting")


def test_prepared_statements_that_are_gone_fail_nothing() -> None:
    """As behind a pooler that lends the session to others between two statements."""
    define([Step(call, once=True), pause])
    this = worker()
    for _ in range(8):
        submit()
        assert this.process_next()
    raw: Any = connections["attempt_log"].connection
    assert raw.execute("SELECT FROM pg_prepared_statements").rowcount, "nothing is prepared, so nothing is proven"
    raw.pgconn.exec_(b"DEALLOCATE ALL")
    workflow = submit()
    with pytest.raises(ClaimLost, match="26000"):
        this.process_next()
    this.in_hand.close_lost()
    assert work(workflow).status == "COMPLETE"


def test_a_step_that_swallows_the_loss_and_raises_its_own_is_not_believed() -> None:
    def ask_and_give_up(*, workflow: Workflow, context: Any) -> None:
        try:
            ask(workflow=workflow, context=context)
        except BaseException:
            raise StepError("Then not.") from None

    for best_effort in (False, True):
        define([Step(ask_and_give_up, best_effort=best_effort)])
        workflow = submit()
        with refused("INSERT INTO workflows_wait", "attempt_log"):
            workflow = lose(workflow)
        assert_put_back(workflow)
        Workflow.objects.filter(pk=workflow.pk).update(status="COMPLETE")


@pytest.mark.parametrize("found", [None, {"number": 2}])
def test_a_lookup_that_swallows_the_loss_is_not_believed(found: dict[str, Any] | None) -> None:
    def lookup(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any] | None:
        with suppress(ClaimLost):
            pause(workflow=workflow, context=context)
        connections["attempt_log"].close()  # the next statement would open it again
        return found

    define([Step(call, once=True, lookup=lookup, settle=0)])
    workflow = submit()
    Effect.objects.create(workflow=workflow, step="call", state="unknown", idempotency_key="k", attempt=1)
    with refused("INSERT INTO workflows_wait", "attempt_log"):
        workflow = lose(workflow)
    assert_put_back(workflow)
    assert (Effect.objects.get().state, CALLED) == ("unknown", [])


def test_a_loss_that_could_not_be_told_at_once_is_told_before_the_next_claim() -> None:
    """Forgotten, the attempt would be found open by the next worker: that looks like a death."""
    define([say_one])
    first, this = submit(), worker()
    with a_column_ahead("workflows_event"):
        with pytest.raises(Error, match="ahead"):
            this.process_next()
        this.in_hand.close_lost()
        assert last_attempt(first).outcome == ""
    assert this.process_next()
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "complete"]


# --- The claim's connection -------------------------------------------------------------------------------------


def ask_the_database(*, workflow: Workflow, context: Any) -> None:
    connection.cursor().execute("SELECT 1")


@pytest.mark.parametrize(
    ("words", "sqlstate", "step"),
    [
        ("payload->>'by'", "57014", say_one),
        ("SAVEPOINT", "XX000", Step(say_one, best_effort=True)),
        ("RELEASE", "57014", ask_the_database),
    ],
)
def test_no_statement_of_ours_on_the_claim_is_charged_to_a_step(words: str, sqlstate: str, step: Any) -> None:
    """Between two steps: whether somebody has asked to cancel, and the savepoint that they run in."""
    define([step])
    workflow = submit()
    with refused(words, "default", sqlstate):
        workflow = lose(workflow)
    assert_put_back(workflow)
    assert work(workflow).status == "COMPLETE"


@pytest.mark.parametrize("words", ["SAVEPOINT", "RELEASE"])
def test_a_best_effort_step_does_not_swallow_what_is_refused_to_us(words: str) -> None:
    define([say_one, Step(call, best_effort=True)])
    workflow = submit()
    savepoints = []

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(words):
            savepoints.append(sql)
            if len(savepoints) == (2 if words == "SAVEPOINT" else 1):  # that of the step
                sql = "SELECT * FROM not_there"
        return execute(sql, *rest)

    with connection.execute_wrapper(count):
        workflow = lose(workflow)
    assert_put_back(workflow)


def test_a_request_to_cancel_that_cannot_be_read_as_a_call_starts_is_no_failure_of_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cancel(*, workflow: Workflow, context: Any) -> None:
        request = {"dedupe_key": "c", "name": "cancel", "payload": {"by": "ada", "reason": ""}}
        engine.elsewhere(lambda: store.store(source="console", workflow_id=workflow.pk, **request))

    define([cancel, Step(call, once=True, best_effort=True)])
    monkeypatch.setattr(worker_boundary, "CHECK_EVERY", 3600.0)  # it does not look again between the steps
    with refused("payload->>'by'", "default"):
        workflow = lose(submit())
    assert_put_back(workflow)


# --- Undoing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "alias"),
    [
        ("INSERT INTO workflows_effect", "attempt_log"),
        ("SAVEPOINT", "default"),
        ("RELEASE", "default"),
        ("payload->>'by'", "default"),
    ],
)
def test_what_is_refused_to_us_counts_as_no_failure_of_an_undo(words: str, alias: str) -> None:
    def undo(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        CALLED.append("undo")

    define([Step(call, once=True, undo=undo)])
    workflow = submit(compensating=True)
    effect = {"step": "call", "state": "done", "result": {"number": 1}, "has_undo": True, "attempt": 1}
    Effect.objects.create(workflow=workflow, idempotency_key="k", **effect)
    with refused(words, alias):
        workflow = lose(workflow)
    assert Effect.objects.get(undo=False).undo_failures == 0
    called = ["undo"] if words == "RELEASE" else []
    assert called == CALLED
    assert (workflow.status, kinds(workflow)) == ("PENDING", ["lost"])
    assert work(workflow).status == "FAILED"
    assert (Effect.objects.get(undo=False).state, CALLED) == ("undone", ["undo"])


# --- What a worker says and does ----------------------------------------------------------------------------------


def test_the_log_names_the_sqlstate_and_the_server_and_the_history_says_why(caplog: pytest.LogCaptureFixture) -> None:
    define([ask])
    workflow, this = submit({"name": "Lovelace"}), worker()
    with a_column_ahead("workflows_wait"):
        this.stopping.wait = lambda _: this.stopping.set() or True  # type: ignore[method-assign]
        this.run()
    told = "NotNullViolation 23502 (workflows_wait.ahead)"
    assert f"lost the database, nothing is decided: {told}, at " in caplog.text
    assert "in _begin" in caplog.text, "where the engine was"
    assert "May it go on" not in caplog.text
    assert (last_attempt(workflow).died_how, last_attempt(workflow).died_in) == (told, "ask")


def test_what_is_lost_twice_in_a_row_is_rescheduled_longer_each_time_whichever_workers_lose_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poison, "LOSSES", poison.LOSSES._replace(jitter_factor=0.0))
    define([ask])
    workflow, delays = submit(), []
    with a_column_ahead("workflows_wait"):
        for _ in range(6):
            due_again(workflow)
            before = Workflow.objects.get(pk=workflow.pk).invisible_until
            workflow = lose(workflow)
            delays.append(0 if workflow.invisible_until == before else round(seconds_until_due(workflow)))
    assert delays == pytest.approx([0, 60, 120, 240, 480, 900], abs=2)
    assert kinds(workflow) == ["lost", *["lost", "put_back"] * 5]


# --- A step's own errors ------------------------------------------------------------------------------------------


def test_a_step_s_own_database_error_is_its_own_wherever_it_is_raised() -> None:
    def divide(*, workflow: Workflow, context: Any) -> None:
        execute("SELECT 1 / 0")

    def divide_by_psycopg(*, workflow: Workflow, context: Any) -> None:
        raw: Any = connection.connection
        raw.execute("SELECT 1 / 0")

    def divide_in_a_lookup(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
        divide(workflow=workflow, context=context)

    for step in (divide, divide_by_psycopg, Step(divide, once=True)):
        define([step])
        assert work(submit()).status == "FAILED"
    define([Step(call, once=True, lookup=divide_in_a_lookup)])
    workflow = submit()
    Effect.objects.create(workflow=workflow, step="call", state="unknown", idempotency_key="k", attempt=1)
    assert work(workflow).last_error_class == "django.db.utils.DataError"


def ask_the_database(_: Any) -> Any:
    execute("SELECT 1 / 0")


class Lazy(UserDict[str, Any]):
    """A result that asks the database when it is looked into."""

    def keys(self) -> Any:
        return ask_the_database(self)


class Asking(BaseModel):
    """A context that asks the database whether it is right."""

    number: Annotated[int | None, AfterValidator(ask_the_database)] = None


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("context_class", [engine.Context, Asking])
def test_what_a_step_s_result_and_its_context_ask_the_database_is_the_step_s(once: bool, context_class: Any) -> None:
    def answer(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return Lazy(number=1) if context_class is engine.Context else {"number": 1}

    define([Step(answer, once=once)], context_class=context_class)
    workflow = work(submit())
    assert (workflow.status, workflow.last_error_class) == ("FAILED", "django.db.utils.DataError")


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        error = Error("so it goes")
        raise error from error

    define([fail])
    assert work(submit()).status == "FAILED"


# --- A connection that is gone, or says so too late -------------------------------------------------


@pytest.mark.parametrize(
    ("alias", "error"), [("default", RetryableStepError()), ("default", StepError("no")), ("attempt_log", ValueError())]
)
def test_nothing_is_decided_on_an_error_while_a_connection_is_gone(alias: str, error: Exception) -> None:
    def lose_it_and_fail(*, workflow: Workflow, context: Any) -> None:
        terminate(alias)
        raise error

    define([lose_it_and_fail])
    assert_put_back(lose(submit()))


def test_no_step_runs_after_a_best_effort_step_has_lost_the_claim() -> None:
    ran: list[str] = []

    def lose_it(*, workflow: Workflow, context: Any) -> None:
        terminate("default")
        Group.objects.count()

    define([Step(lose_it, best_effort=True), lambda *, workflow, context: ran.append("next")])
    assert (lose(submit()).status, ran) == ("PENDING", [])


@pytest.mark.parametrize("error", [None, RetryableStepError("Not now.")])
def test_nothing_is_decided_while_the_attempt_is_not_to_be_seen(error: Exception | None) -> None:
    """A claim of which every statement sees the same snapshot, older than the attempt, could never close it."""
    failing = [error]

    def fail_once(*, workflow: Workflow, context: Any) -> None:
        if failing and (failure := failing.pop()):
            raise failure

    define([fail_once])
    workflow = submit()
    execute("SET default_transaction_isolation = 'repeatable read'")
    lose(workflow)
    assert work(workflow).status == "COMPLETE"
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "complete"]
