"""An error of the database in a step: for now, for good, or no fault of the step's; and what hooks of COMMIT raise."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from tests import engine
from tests.engine import define, last_attempt, submit, work, worker
from tests.workflows.cancelling import nothing
from workflows.definition import Retry, Step
from workflows.engine import loop, process_status
from workflows.engine.process_status import WorkerStatus
from workflows.errors import RetryableStepError
from workflows.models import Effect, Workflow
from workflows.postgres.statements import execute

pytestmark = engine.ENGINE


@pytest.mark.parametrize("once", [False, True])
def test_what_the_database_cannot_do_now_is_retried_and_nothing_else(once: bool) -> None:
    """Another session is in the way, the server is unable, the connection is lost, a migration is missing."""
    not_now = ["40001", "25006", "08006", "42703", "25P04", "53000", "54000", "58000", "58030"]
    for sqlstate in [*not_now, "23505", "53400", "58P01", "26000"]:

        def collide(*, workflow: Workflow, context: Any, sqlstate: str = sqlstate) -> None:
            execute(f"DO $$ BEGIN RAISE EXCEPTION 'so it goes' USING ERRCODE = '{sqlstate}'; END $$")

        define([Step(collide, once=once, retry=Retry(base_delay=300))])
        workflow = work(submit())
        expected = ("PENDING", 1) if sqlstate in not_now else ("FAILED", 0)
        assert (workflow.status, workflow.retry_count) == expected, sqlstate
        assert [effect.state for effect in Effect.objects.filter(workflow=workflow)] == ["unknown"] * once


def stay_idle(setting: str, first: str = "SELECT 1") -> None:
    """Longer than the server lets it, on a connection of the step's own."""
    with engine.another_connection() as own:
        own.execute(f"SET {setting} = 1")
        own.execute(first)
        time.sleep(0.2)
        own.execute("SELECT 1")


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (partial(stay_idle, "idle_session_timeout"), "psycopg.errors.IdleSessionTimeout"),
        (
            partial(stay_idle, "idle_in_transaction_session_timeout", "BEGIN"),
            "psycopg.errors.IdleInTransactionSessionTimeout",
        ),
        (lambda: psycopg.connect("host=127.0.0.1 port=1 dbname=elsewhere"), "psycopg.OperationalError"),
        (lambda: bytearray(2**62), "MemoryError"),
    ],
    ids=[
        "a session of its own that was idle",
        "a transaction of its own that was idle",
        "a database of its own that is away",
        "memory that runs out",
    ],
)
def test_what_the_step_s_own_world_cannot_do_now_is_tried_again(act: Callable[[], object], error: str) -> None:
    def step(*, workflow: Workflow, context: Any) -> None:
        act()

    define([step])
    workflow = work(submit())
    assert (workflow.status, workflow.retry_count) == ("PENDING", 1)
    # On a busy machine the connection's reset overtakes what the server has said of the end of an idle session.
    assert workflow.last_error_class in (error, "psycopg.OperationalError")


def test_a_deferred_constraint_is_the_attempts_failure_and_not_the_commits() -> None:
    """At the COMMIT it would undo the decision too: the row would be due again, for ever."""

    def break_it(*, workflow: Workflow, context: Any) -> None:
        Group.permissions.through.objects.create(group_id=987_654, permission_id=987_654)

    define([break_it])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert workflow.last_error_class == "django.db.utils.IntegrityError"
    assert workflow.last_error_message.endswith(", SQLSTATE 23503")


def divide() -> None:
    execute("SELECT 1 / 0")


def mark_for_rollback() -> None:
    with transaction.atomic(savepoint=False):
        raise LookupError


@pytest.mark.parametrize("act", [divide, mark_for_rollback])
def test_a_step_that_swallows_a_database_error_is_told(act: Callable[[], None]) -> None:
    def swallow(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        with suppress(Exception):
            act()
        return {}

    define([swallow])
    workflow = work(submit())
    assert workflow.status == "FAILED"
    assert "swallowed a database error" in workflow.last_error_message


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


# --- How long the hooks may take --------------------------------------------------------------------


def test_the_supervisor_knows_how_long_a_hook_may_take() -> None:
    """Nothing in the process ends one that hangs: the attempt is over, and with it the time of its steps."""
    (slot,) = process_status.allocate(1)
    seen: list[WorkerStatus | None] = []

    def hook(*, workflow: Workflow, context: Any) -> None:
        transaction.on_commit(lambda: seen.append(slot.read()))

    define([hook])
    workflow, began = submit(), time.monotonic()
    assert worker(slot=slot).process_next()
    (during,) = seen
    assert during is not None
    assert (during.workflow_id, during.step) == (workflow.pk, "an on_commit hook, after hook")
    assert began + loop.HOOKS_TIMEOUT <= during.deadline <= time.monotonic() + loop.HOOKS_TIMEOUT
    after = slot.read()
    assert after is not None
    assert (after.workflow_id, after.deadline) == (0, process_status.NEVER)


def test_where_there_is_nothing_to_do_no_deadline_is_left_behind() -> None:
    (slot,) = process_status.allocate(1)
    define([nothing])
    assert not worker(slot=slot).process_next()
    assert (slot.read() or WorkerStatus(deadline=0)).deadline == process_status.NEVER


def test_a_hook_of_a_failed_attempt_is_never_called() -> None:
    called = []

    def hook(*, workflow: Workflow, context: Any) -> None:
        transaction.on_commit(lambda: called.append(True))
        raise RetryableStepError

    define([hook])
    work(submit())
    assert called == []
