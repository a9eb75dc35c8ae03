"""DECIDE: what a worker makes of a workflow whose steps have run: their results, their writes, its history, the log."""

import uuid
from contextlib import suppress
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection

from tests import engine
from tests.engine import define, kinds, last_attempt, outcomes, submit, work
from tests.workflows.engine.steps import say_one, write_a_group
from workflows.definition import Step
from workflows.errors import RetryableStepError, StepError
from workflows.models import Event, Workflow

pytestmark = engine.ENGINE


def fail_for_now(*, workflow: Workflow, context: Any) -> None:
    raise RetryableStepError("Not now.")


def not_for_this_one(*, workflow: Workflow, context: Any) -> None:
    return None


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
        ({"nunber": 1}, "returned nunber: not declared in Context. Did you mean 'number'?"),
        ({"number": "one"}, "returned what Context refuses: number (int_parsing, declared as int | None)"),
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
    assert workflow.last_error_message == f"misspell {message}"


@pytest.mark.parametrize("then", [not_for_this_one, fail_for_now])
def test_the_server_never_shows_a_context_as_the_text_of_a_statement(then: Any) -> None:
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

    define([tell, then])
    workflow = submit()
    with connection.execute_wrapper(look_at_each_statement):
        assert work(workflow).context["text"] == "Ada Alvarez"
    assert [query for query in shown if "UPDATE" in query and "context" in query]
    assert not [query for query in shown if "Ada Alvarez" in query]


def test_a_best_effort_step_may_fail_and_its_writes_are_gone() -> None:
    def write_and_fail(*, workflow: Workflow, context: Any) -> None:
        Group.objects.create(name="half")
        raise StepError("Not today.", code="not_today")

    define([Step(write_and_fail, best_effort=True), write_a_group, say_one])
    workflow = work(submit())
    assert (workflow.status, Group.objects.filter(name="half").exists()) == ("COMPLETE", False)
    assert outcomes(workflow)["write_and_fail"] == "best_effort_failed"
    event = Event.objects.get(workflow=workflow, kind="best_effort_failed")
    assert (event.step, event.detail["error_code"]) == ("write_and_fail", "not_today")


@pytest.mark.parametrize("what", ["a database error", "one that it swallows", "a deferred constraint"])
def test_a_best_effort_step_may_break_its_own_savepoint(what: str) -> None:
    """Left in the transaction, it would have aborted it: no later step could say a word to the database."""

    def break_it(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        Group.objects.create(name="half")
        with suppress(DatabaseError if "swallows" in what else KeyError):
            if "constraint" not in what:
                connection.cursor().execute("SELECT 1 / 0")
            Group.permissions.through.objects.create(group_id=987_654, permission_id=987_654)
        return {"text": "of what is rolled back"}

    define([Step(break_it, best_effort=True), write_a_group])
    workflow = work(submit())
    assert (workflow.status, workflow.context["text"]) == ("COMPLETE", None)
    assert outcomes(workflow)["break_it"] == "best_effort_failed"
    kept = Group.objects.filter(name__in=["half", "written by a step"])
    assert [group.name for group in kept] == ["written by a step"]


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


# --- How many savepoints it takes: past 64, all of the server's snapshots become slower -------------


def writing(name: str, *, best_effort: bool = False) -> Step:
    def write(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        Group.objects.create(name=f"by {name}")
        return {}

    return Step(write, name=name, best_effort=best_effort)


def steps_of_two_kinds() -> list[Step]:
    ordinary = [writing(f"ordinary {number}") for number in range(100)]
    return [*ordinary[:50], writing("a", best_effort=True), *ordinary[50:], writing("b", best_effort=True)]


def written() -> set[str]:
    return set(Group.objects.filter(name__startswith="by ").values_list("name", flat=True))


def test_ordinary_steps_share_one_savepoint_and_a_best_effort_step_has_its_own() -> None:
    """By the server's own count, too, of those that have written; its room is 64 (PGPROC_MAX_CACHED_SUBXIDS)."""
    counted = []

    def count(*, workflow: Workflow, context: Any) -> None:
        assert connection.connection is not None
        if connection.pg_version >= 160000:  # PostgreSQL tells it since then
            with engine.another_connection() as other:
                sql = """SELECT subxact_count, subxact_overflowed
                           FROM pg_stat_get_backend_idset() id, pg_stat_get_backend_subxact(id)
                          WHERE pg_stat_get_backend_pid(id) = %s"""
                counted.append(other.execute(sql, [connection.connection.info.backend_pid]).fetchone())

    define([*steps_of_two_kinds(), Step(count)])
    with engine.sent() as statements:
        workflow = work(submit())
    assert (workflow.status, len(written())) == ("COMPLETE", 102)
    assert len([sql for sql in statements if sql.startswith("SAVEPOINT")]) == 1 + 2
    assert set(counted) <= {(1 + 2, False)}
