"""CLAIM and DECIDE: what a worker makes of one workflow."""

import uuid
from datetime import timedelta
from threading import Event as Flag
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, connections, transaction
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, last_attempt, make_due, outcomes, submit, work, worker
from workflows.definition import Retry, Step
from workflows.errors import ClaimLost, RetryableStepError, StepError
from workflows.models import Attempt, Effect, Event, Workflow
from workflows.waits import WaitFailed
from workflows.worker import lease

pytestmark = engine.ENGINE


def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def not_for_this_one(*, workflow: Workflow, context: Any) -> None:
    return None


def fail_for_now(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError("The service is busy.", code="busy")


def fail_for_good(*, workflow: Workflow, context: Any) -> None:
    raise StepError("The card was declined.", code="card_declined")


def write_a_group(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    Group.objects.create(name="written by a step")
    return {}


def test_it_runs_every_step_and_completes() -> None:
    define([say_one, not_for_this_one])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    assert workflow.completed_at is not None
    assert workflow.context == {"number": 1, "text": None, "key": None, "tags": []}
    assert outcomes(workflow) == {"say_one": "ran", "not_for_this_one": "skipped"}
    assert kinds(workflow) == ["completed"]
    attempt = last_attempt(workflow)
    assert (attempt.number, attempt.outcome, attempt.worker) == (1, "complete", "test-host:1")
    assert attempt.closed_at is not None


def test_it_says_that_nothing_is_due() -> None:
    define([say_one])
    submit(invisible_until=timezone.now() + timedelta(hours=1))
    submit(queue="another")
    assert worker().process_next() is False


def test_it_takes_the_oldest_due_time_first() -> None:
    define([say_one])
    now = timezone.now()
    later, sooner = (submit(invisible_until=now - timedelta(seconds=age)) for age in (5, 10))
    work(sooner)
    assert Workflow.objects.get(pk=sooner.pk).status == "COMPLETE"
    assert Workflow.objects.get(pk=later.pk).status == "PENDING"


def test_a_retryable_failure_leaves_nothing_behind_but_its_history() -> None:
    define([write_a_group, fail_for_now])
    before = submit()
    workflow = work(before)
    assert workflow.status == "PENDING"
    assert workflow.retry_count == 1
    assert workflow.invisible_until > before.invisible_until
    assert workflow.current_step == "fail_for_now"
    assert workflow.last_error_code == "busy"
    assert not Group.objects.exists()
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


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RetryableStepError("Not now.", code="busy"), "ended as retry, at look: busy"),
        (ValueError("Broken."), "ended as failed, at look: ValueError"),
        (None, "ended as complete, at look"),
    ],
)
def test_the_log_says_what_became_of_an_attempt_and_where(
    error: Exception | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def look(*, workflow: Workflow, context: Any) -> None:
        if error:
            raise error

    define([look])
    workflow = work(submit())
    (line,) = [each.getMessage() for each in caplog.records if "ended as" in each.getMessage()]
    assert line == f"workflow {workflow.pk} (test, key {workflow.key}): attempt 1 {told}"


def test_the_server_never_shows_a_context_as_the_text_of_a_statement() -> None:
    """It is a patient's, and pg_stat_activity and the server's log show that text."""
    shown = []

    def tell(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"text": "Ada Alvarez"}

    def look_at_each_statement(execute: Any, sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        with engine.another_connection() as other:
            pid = connection.connection.info.backend_pid
            shown.extend(other.execute("SELECT query FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone() or ())
        return result

    define([tell])
    workflow = submit()
    with connection.execute_wrapper(look_at_each_statement):
        assert work(workflow).context["text"] == "Ada Alvarez"
    assert [query for query in shown if query.startswith("UPDATE")]
    assert not [query for query in shown if "Ada Alvarez" in query]


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
    def take_a_second(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(1)")
        raise RetryableStepError(base_delay=0.5, jitter_factor=0)

    define([take_a_second])
    workflow = work(submit())
    opened = last_attempt(workflow).opened_at
    assert workflow.invisible_until - opened >= timedelta(seconds=1.5)


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


def test_it_fails_when_a_step_has_failed_too_often() -> None:
    define([fail_for_now], retry=Retry(max_attempts=2))
    workflow = work(submit())
    assert workflow.status == "PENDING"
    make_due(workflow)
    workflow = work(workflow)
    assert workflow.status == "FAILED"
    assert workflow.last_error_code == "busy"
    assert kinds(workflow) == ["retry_scheduled", "failed"]


@pytest.mark.parametrize(
    ("error", "step", "definition", "limit"),
    [(1, 2, 3, 1), (None, 2, 3, 2), (None, None, 3, 3), (None, None, None, 10)],
)
def test_what_the_error_states_beats_the_step_and_that_the_definition(
    error: int | None, step: int | None, definition: int | None, limit: int
) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError(max_attempts=error)

    define([Step(fail, retry=Retry(max_attempts=step))], retry=Retry(max_attempts=definition))
    workflow = submit()
    for _ in range(limit):
        assert workflow.status == "PENDING"
        make_due(workflow)
        workflow = work(workflow)
    assert workflow.status == "FAILED"


def test_any_other_failure_is_for_good() -> None:
    define([write_a_group, fail_for_good, say_one])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert workflow.completed_at is not None
    assert (workflow.current_step, workflow.last_error_code) == ("fail_for_good", "card_declined")
    assert not Group.objects.exists()
    assert outcomes(workflow) == {"write_a_group": "ran", "fail_for_good": "failed"}
    assert Event.objects.get(workflow=workflow).detail["error_message"] == "The card was declined."


def test_an_exit_in_a_step_is_the_steps_failure() -> None:
    def leave(*, workflow: Workflow, context: Any) -> None:
        raise SystemExit(3)

    define([leave])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert workflow.last_error_class == "SystemExit"


def test_error_text_holds_nothing_of_the_payload() -> None:
    def repeat_it(*, workflow: Workflow, context: Any) -> None:
        raise ValueError(f"bad: {workflow.payload['name']} <{workflow.payload['email']}> born 1990-02-28, 'secret'")

    define([repeat_it])
    workflow = work(submit({"name": "Zebulon", "email": "zeb@example.org"}))
    stored = [workflow.last_error_message, str(list(Event.objects.values())), str(list(Attempt.objects.values()))]
    for text in stored:
        for value in ("Zebulon", "zeb@", "1990", "secret"):
            assert value not in text
    assert "in repeat_it" in last_attempt(workflow).traceback


NOT_NOW = [
    *("40001", "40P01", "55P03", "57014"),
    *("25006", "53100", "53200", "53300", "57P01", "57P02", "57P03", "08006"),
    *("42703", "42P01"),
]


@pytest.mark.parametrize("sqlstate", NOT_NOW)
@pytest.mark.parametrize("once", [False, True])
def test_what_the_database_cannot_do_now_is_retried(sqlstate: str, once: bool) -> None:
    def collide(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'so it goes' USING ERRCODE = '{sqlstate}'; END $$")

    define([Step(collide, once=once)])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)
    assert [effect.state for effect in Effect.objects.all()] == ["unknown"] * once


def test_a_database_of_the_steps_own_that_is_away_is_tried_again() -> None:
    def look_elsewhere(*, workflow: Workflow, context: Any) -> None:
        psycopg.connect("host=127.0.0.1 port=1 dbname=elsewhere")

    define([look_elsewhere])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)


def test_a_read_only_server_a_missing_table_and_a_missing_column_are_not_the_steps_fault() -> None:
    for sql in ("SET LOCAL transaction_read_only = on; DELETE FROM auth_group", "SELECT * FROM gone", "SELECT gone"):

        def ask(*, workflow: Workflow, context: Any, sql: str = sql) -> None:
            with connection.cursor() as cursor:
                cursor.execute(sql)

        define([Step(ask, name="ask")])
        workflow = work(submit())
        assert (workflow.status, workflow.retry_count) == ("PENDING", 1), sql


def test_memory_that_runs_out_is_tried_again() -> None:
    def use_it_up(*, workflow: Workflow, context: Any) -> None:
        bytearray(2**62)

    define([use_it_up])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count, workflow.last_error_class) == ("PENDING", 1, "MemoryError")


@pytest.mark.parametrize("sqlstate", ["22012", "23505", "42601", "42883", "53400", "54000", "P0001"])
def test_another_database_error_is_for_good(sqlstate: str) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"DO $$ BEGIN RAISE EXCEPTION 'so it goes' USING ERRCODE = '{sqlstate}'; END $$")

    define([fail])
    assert work(submit()).status == "FAILED"


def test_a_deferred_constraint_is_the_attempts_failure_and_not_the_commits() -> None:
    """At the COMMIT it would undo the decision too: the row would be due again, for ever."""

    def break_it(*, workflow: Workflow, context: Any) -> None:
        Group.permissions.through.objects.create(group_id=987_654, permission_id=987_654)

    define([break_it])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert workflow.last_error_class == "django.db.utils.IntegrityError"
    assert "violates" in workflow.last_error_message
    assert "DETAIL" not in workflow.last_error_message, "it quotes the row"


def test_a_step_that_swallows_a_database_error_is_told() -> None:
    def swallow(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 / 0")
        except Exception:
            return {}
        return {}

    define([swallow])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert "swallow swallowed a database error" in workflow.last_error_message


def test_a_step_whose_inner_transaction_was_marked_for_rollback_is_told() -> None:
    def mark(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        try:
            with transaction.atomic(savepoint=False):
                raise LookupError
        except LookupError:
            return {}

    define([mark])
    assert "swallowed a database error" in work(submit()).last_error_message


def test_a_hook_that_fails_after_the_commit_changes_nothing() -> None:
    called = []

    def hook(*, workflow: Workflow, context: Any) -> None:
        def raise_it() -> None:
            called.append(True)
            raise RuntimeError

        transaction.on_commit(raise_it)

    define([hook])
    workflow = work(submit())
    assert called == [True]
    assert workflow.status == "COMPLETE"
    assert last_attempt(workflow).outcome == "complete"


def test_a_hook_of_a_failed_attempt_is_never_called() -> None:
    called = []

    def hook(*, workflow: Workflow, context: Any) -> None:
        transaction.on_commit(lambda: called.append(True))
        raise RetryableStepError

    define([hook])
    work(submit())
    assert called == []


def terminate(alias: str) -> None:
    """Let the server end one of our two connections, as an administrator, a failover or a timeout does."""
    pid = connections[alias].connection.info.backend_pid
    with engine.another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.parametrize("alias", ["default", "journal"])
@pytest.mark.parametrize("error", [ValueError("looks ordinary"), RetryableStepError(), StepError("no")])
def test_nothing_is_decided_on_an_error_while_a_connection_is_gone(alias: str, error: Exception) -> None:
    def lose_it_and_fail(*, workflow: Workflow, context: Any) -> None:
        terminate(alias)
        raise error

    define([lose_it_and_fail])
    workflow = submit()
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    this._close_lost_attempt()
    workflow = Workflow.objects.get(pk=workflow.pk)
    assert (workflow.status, workflow.retry_count, kinds(workflow)) == ("PENDING", 0, ["lost"])
    assert last_attempt(workflow).outcome == "lost"


def test_a_best_effort_step_does_not_swallow_the_loss_of_the_claim() -> None:
    def lose_it(*, workflow: Workflow, context: Any) -> None:
        terminate("default")
        Group.objects.count()

    define([Step(lose_it, best_effort=True), say_one])
    workflow = submit()
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    this._close_lost_attempt()
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"


def test_a_step_that_closes_the_connection_decides_nothing() -> None:
    """`atomic()` exits without a word then, as if all had been committed."""

    def close(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        connection.close()
        return {}

    define([close])
    workflow = submit()
    this = worker()
    with pytest.raises((ClaimLost, OperationalError)):  # as the server has noticed yet, or not
        this.process_next()
    this._close_lost_attempt()
    assert Workflow.objects.get(pk=workflow.pk).status == "PENDING"
    assert last_attempt(workflow).outcome == "lost"


def test_an_attempt_found_open_has_vanished() -> None:
    define([say_one])
    workflow = submit()
    Attempt.objects.create(workflow=workflow, number=1, worker="gone:1")
    workflow = work(workflow)
    assert list(workflow.attempts.order_by("number").values_list("outcome", flat=True)) == ["vanished", "complete"]
    assert kinds(workflow) == ["vanished", "completed"]


def test_that_an_attempt_vanished_is_told_also_when_the_next_one_is_lost() -> None:
    def lose_the_claim(*, workflow: Workflow, context: Any) -> None:
        connection.close()

    define([lose_the_claim])
    workflow = submit()
    Attempt.objects.create(workflow=workflow, number=1, worker="gone:1")
    this = worker()
    with pytest.raises((ClaimLost, OperationalError)):  # the server may take a moment to see that we are gone
        this.process_next()
    this._close_lost_attempt()
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["vanished", "lost"]
    told = Event.objects.filter(workflow=workflow).order_by("id").values_list("kind", "attempt")
    assert list(told) == [("vanished", 1), ("lost", 2)]


def test_a_type_that_this_release_does_not_know_is_put_back() -> None:
    workflow = submit(workflow_type="of_the_next_release")
    for _ in range(2):
        make_due(workflow)
        workflow = work(workflow)
        assert workflow.status == "PENDING"
        assert timedelta(seconds=50) < workflow.invisible_until - timezone.now() < timedelta(seconds=70)
    assert kinds(workflow) == ["put_back"], "one event, not one a minute"


def test_at_the_end_of_its_grace_a_worker_gives_back_at_the_next_step() -> None:
    stop = Flag()

    def run_while_told_to_stop(*, workflow: Workflow, context: Any) -> None:
        stop.set()

    define([run_while_told_to_stop, say_one])
    before = submit()
    workflow = work(before, must_stop=stop.is_set)
    assert workflow.status == "PENDING"
    assert workflow.invisible_until == before.invisible_until, "due at once, for the next worker"
    assert outcomes(workflow) == {"run_while_told_to_stop": "skipped"}
    assert kinds(workflow) == ["put_back"]
    assert work(workflow).status == "COMPLETE"


def test_the_watermark_does_not_hide_what_becomes_due_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    define([say_one])
    ahead, behind = (submit(invisible_until=timezone.now() - timedelta(minutes=age)) for age in (1, 2))
    Workflow.objects.filter(pk=behind.pk).update(invisible_until=timezone.now() + timedelta(hours=1))
    this = worker()
    assert this.process_next()
    make_due(behind)
    Workflow.objects.filter(pk=behind.pk).update(invisible_until=timezone.now() - timedelta(minutes=2))
    assert this.process_next(), "nothing is due ahead of the watermark, so it looks again from the start"
    assert Workflow.objects.get(pk=behind.pk).status == "COMPLETE"
    assert Workflow.objects.get(pk=ahead.pk).status == "COMPLETE"


def test_the_watermark_sees_rows_that_are_due_at_the_same_time() -> None:
    """As after a bulk operation: the time alone would skip, or repeat, all of them."""
    define([say_one])
    at = timezone.now() - timedelta(minutes=1)
    for _ in range(5):
        submit(invisible_until=at)
    this = worker()
    while this.process_next():
        pass
    assert Workflow.objects.filter(status="COMPLETE").count() == 5


def test_a_result_is_merged_through_its_json_form() -> None:
    key = uuid.uuid4()
    seen = []

    def give(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"key": str(key), "tags": ("a", "b")}

    def take(*, workflow: Workflow, context: Any) -> None:
        seen.append((context.key, context.tags))

    define([give, take])
    work(submit())
    assert seen == [(key, ["a", "b"])]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"nunber": 1}, "returned nunber: not declared in Context"),
        ({"number": "one"}, "returned what Context refuses: number (int_parsing)"),
    ],
)
def test_a_result_that_the_context_does_not_take_names_the_step_and_the_field(
    result: dict[str, Any], message: str
) -> None:
    def misspell(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return result

    define([misspell])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert workflow.last_error_message == f"misspell {message}" + ("." if "declared" in message else "")


@pytest.mark.parametrize("value", ["nul \x00", "surrogate \ud800"])
def test_a_result_that_postgresql_cannot_keep_is_the_steps_failure(value: str) -> None:
    def give(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"text": value}

    define([give])
    assert work(submit()).status == "FAILED"


def test_a_best_effort_step_may_fail_and_its_writes_are_gone() -> None:
    def write_and_fail(*, workflow: Workflow, context: Any) -> None:
        Group.objects.create(name="half")
        raise StepError("Not today.", code="not_today")

    define([Step(write_and_fail, best_effort=True), write_a_group, say_one])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    assert list(Group.objects.values_list("name", flat=True)) == ["written by a step"]
    assert outcomes(workflow)["write_and_fail"] == "best_effort_failed"
    event = Event.objects.get(workflow=workflow, kind="best_effort_failed")
    assert (event.step, event.detail["error_code"]) == ("write_and_fail", "not_today")


@pytest.mark.parametrize("what", ["a database error", "a deferred constraint"])
def test_a_best_effort_step_may_break_its_own_savepoint(what: str) -> None:
    def break_it(*, workflow: Workflow, context: Any) -> None:
        if what == "a database error":
            connection.cursor().execute("SELECT 1 / 0")
        Group.permissions.through.objects.create(group_id=987_654, permission_id=987_654)

    define([Step(break_it, best_effort=True), write_a_group])
    workflow = work(submit())
    assert workflow.status == "COMPLETE"
    assert Group.objects.count() == 1


def test_what_a_step_does_to_its_workflow_changes_neither_the_row_nor_the_decision() -> None:
    def meddle(*, workflow: Workflow, context: Any) -> None:
        workflow.pk = other.pk
        workflow.workflow_type = "unknown"
        workflow.retry_count = 7
        workflow.payload.clear()
        raise RetryableStepError("ada@example.com and Lovelace are busy.")

    define([meddle])
    workflow, other = submit({"name": "Lovelace"}), submit()
    workflow = work(workflow)
    other.refresh_from_db()
    assert (workflow.payload, workflow.retry_count, kinds(workflow)) == ({"name": "Lovelace"}, 1, ["retry_scheduled"])
    assert workflow.last_error_message == "••• and ••• are busy."
    assert (other.status, kinds(other)) == ("PENDING", [])


def test_a_step_may_not_save_the_workflow() -> None:
    def correct(*, workflow: Workflow, context: Any) -> None:
        workflow.payload["name"] = "Byron"
        workflow.save()

    define([correct])
    workflow = work(submit({"name": "Lovelace"}))
    assert (workflow.status, workflow.last_error_class) == ("FAILED", "TypeError")
    assert workflow.payload == {"name": "Lovelace"}


def test_nothing_is_decided_while_the_attempt_is_not_to_be_seen() -> None:
    """A claim of which every statement sees the same snapshot, older than the attempt, could never close it."""
    define([lambda *, workflow, context: None])
    workflow = submit()
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    this = worker()
    with pytest.raises(ClaimLost):
        this.process_next()
    this._close_lost_attempt()
    assert work(workflow).status == "COMPLETE"
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "complete"]


def test_a_worker_reads_what_is_committed_whatever_the_database_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for alias in ("default", "journal"):
        monkeypatch.setitem(connections[alias].settings_dict, "OPTIONS", {})
    lease.describe_connections("test-host:1")
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with engine.another_connection() as other:
        other.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = 'repeatable read'")
        connections.close_all()
        try:
            define([say_one])
            workflow = work(submit())
            assert (workflow.status, last_attempt(workflow).outcome) == ("COMPLETE", "complete")
        finally:
            connections.close_all()
            other.execute(f"ALTER DATABASE {database} RESET default_transaction_isolation")


@pytest.mark.parametrize(
    ("name", "value"), [("search_path", "nowhere"), ("statement_timeout", "60s"), ("TimeZone", "Asia/Tokyo")]
)
def test_what_a_step_sets_for_the_session_ends_with_its_attempt(name: str, value: str) -> None:
    """Left alone it holds for the engine, which finds no table, and for the next workflow, whose times are wrong."""

    def set_it(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET {name} = '{value}'")

    define([set_it])
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        before = cursor.fetchone()
        assert work(submit()).status == "COMPLETE"
        cursor.execute(f"SHOW {name}")
        assert cursor.fetchone() == before


class Busy(RetryableStepError):
    """An error of a step's own that does not call __init__ of ours."""

    def __init__(self) -> None:
        self.queue = 7


@pytest.mark.parametrize("once", [False, True])
def test_an_error_of_a_class_of_the_steps_own_is_what_its_class_says(once: bool) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise Busy

    define([Step(fail, once=once)])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)
    assert set(Effect.objects.values_list("state", flat=True)) <= {"not_done"}


NONSENSE: list[tuple[str, Any, str]] = [
    ("max_attempts", "x", "TypeError: max_attempts is a whole number, and not of type str."),
    ("max_attempts", float("nan"), "TypeError: max_attempts is a whole number, and not of type float."),
    ("base_delay", "abc", "TypeError: base_delay is a number, and not of type str."),
    ("max_delay", float("nan"), "ValueError: max_delay is a number, and not NaN."),
    ("jitter_factor", timedelta(1), "TypeError: jitter_factor is a number, and not of type timedelta."),
    ("wake_on", [3], "TypeError: wake_on holds names of signals, and nothing of type int."),
    ("wake_on", 3, "TypeError: wake_on holds names of signals, and nothing of type int."),
]
NUMBERS_AND_NAMES: list[Any] = [
    pytest.param("max_attempts", 10**5000, id="max_attempts-of-5001-digits"),
    ("base_delay", -5),
    pytest.param("base_delay", 10**400, id="base_delay-of-401-digits"),
    ("base_delay", timedelta(hours=1)),
    ("max_delay", float("inf")),
    pytest.param("jitter_factor", 10**400, id="jitter_factor-of-401-digits"),
    ("wake_on", "paid"),
    ("wake_on", ["a\x00b"]),
]


@pytest.mark.parametrize(("argument", "value", "told"), NONSENSE)
def test_an_error_with_an_argument_that_is_nonsense_fails_the_step_and_names_it(
    argument: str, value: Any, told: str
) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError("Busy.", **{argument: value})

    define([fail])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert f"{workflow.last_error_class}: {workflow.last_error_message}" == told


@pytest.mark.parametrize(("attribute", "value"), [*(each[:2] for each in NONSENSE), *NUMBERS_AND_NAMES])
@pytest.mark.parametrize("by_class", [True, False])
def test_whatever_an_error_of_a_step_s_own_states_it_is_retried(attribute: str, value: Any, by_class: bool) -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        if by_class:
            raise type("Own", (Busy,), {attribute: value})
        error = RetryableStepError("Busy.")
        setattr(error, attribute, value)
        raise error

    define([fail])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)
    assert workflow.wake_on == (["paid"] if value == "paid" else [])


class Unpaid(WaitFailed):
    """An error of a step's own that does not call __init__ of ours, and knows no wait."""

    def __init__(self) -> None:
        self.sum = 7


def test_an_error_of_the_steps_own_that_is_like_a_wait_s_fails_the_step() -> None:
    def fail(*, workflow: Workflow, context: Any) -> None:
        raise Unpaid

    define([fail])
    assert work(submit()).status == "FAILED"
