"""Waits against a worker that has lost the row, and whose last statement is still on its way: the fence let it pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests import engine
from tests.engine import define, make_due, submit, work
from workflows.models import ManualTask, Wait, Workflow
from workflows.signals import store, waking
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal, wait_for_time

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)

Statement = tuple[str, list[Any]]

BEGINS = """INSERT INTO workflows_wait (workflow_id, kind, name, waiting_for, deadline)
            VALUES (%s, %s, 'w', 'something', clock_timestamp() + interval '1 hour')"""
STARTS = """INSERT INTO workflows_workflow
                   (idempotency_key, workflow_type, payload, parent_id, parent_wait, child_key)
            VALUES (gen_random_uuid(), 'test', '{}', %s, 'w', %s)"""
CLOSES = "UPDATE workflows_signal SET closed_at = clock_timestamp() WHERE workflow_id = %s"
ANSWERS = """UPDATE workflows_wait SET outcome = %s, result = %s, resolved_at = clock_timestamp()
              WHERE workflow_id = %s"""
RECEIVED = '{"name": "paid", "payload": {"n": 7}, "source": "shop", "at": "2026-01-01T00:00:00+00:00"}'
FOUND = '{"name": "", "payload": {"n": 9}, "source": "look", "at": "2026-01-01T00:00:00+00:00"}'
APPROVED = '{"approved": true, "by": "ada", "reason": "as the first one has written it"}'


def for_signal(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": wait_for_signal(workflow, "w", "paid", timeout=HOUR).payload["n"]}


def for_signal_looking(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": wait_for_signal(workflow, "w", "paid", timeout=HOUR, look=lambda: {"n": 8}).payload["n"]}


def for_person(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"text": require_approval(workflow, "w", question="May it?", timeout=HOUR).reason}


def for_time(*, workflow: Workflow, context: Any) -> None:
    wait_for_time(workflow, "w", HOUR)


def for_children(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": len(wait_for_children(workflow, "w", [], timeout=HOUR))}


def for_two_children(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    if workflow.parent_id:
        return {}
    children = [Child("test", {}, key) for key in ("first", "second")]
    return {"number": len(wait_for_children(workflow, "w", children, timeout=HOUR))}


def run_while_it_writes(statements: Sequence[Statement], *, then: Sequence[Statement] = ()) -> None:
    """Let a worker drain the queue while these are written, and commit when it waits for them.

    `then` is written while it waits, and without waiting for it.
    """
    with engine.another_connection() as other:
        with other.transaction():
            for sql, parameters in statements:
                other.execute(sql.encode(), parameters)
            rightful = engine.draining()
            engine.until_blocked()
            other.execute("SET LOCAL lock_timeout = 100")  # before the server looks for a deadlock
            for sql, parameters in then:
                other.execute(sql.encode(), parameters)
        rightful.join(60)


@pytest.mark.parametrize(
    ("step", "kind", "status"),
    [
        (for_signal, "signal", "PENDING"),
        (for_time, "time", "PENDING"),
        (for_children, "children", "COMPLETE"),
    ],
)
def test_a_wait_that_it_is_still_making_is_the_wait_of_the_next_worker(
    step: Any, kind: str, status: str, caplog: pytest.LogCaptureFixture
) -> None:
    define([step])
    workflow = submit()
    run_while_it_writes([(BEGINS, [workflow.pk, kind])])
    workflow.refresh_from_db()
    assert (workflow.status, workflow.last_error_class) == (status, "")
    assert Wait.objects.count() == 1
    assert not [each for each in caplog.records if each.levelname == "ERROR"], "engineers have nothing to look at"


def test_an_answer_that_it_is_still_writing_is_the_answer_of_the_next_worker() -> None:
    define([for_signal])
    workflow = work(submit())
    store.send(source="shop", dedupe_key="1", name="paid", workflow_id=workflow.pk, payload={"n": 7})
    run_while_it_writes([(ANSWERS, ["received", RECEIVED, workflow.pk]), (CLOSES, [workflow.pk])])
    workflow.refresh_from_db()
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 7)


def is_told(workflow: Workflow) -> None:
    store.send(source="shop", dedupe_key="1", name="paid", workflow_id=workflow.pk, payload={"n": 7})


def looks_again(workflow: Workflow) -> None:
    define([for_signal_looking])
    make_due(workflow)


@pytest.mark.parametrize("meanwhile", [is_told, looks_again, engine.expire])
def test_what_it_has_found_and_is_still_writing_stands(meanwhile: Callable[[Workflow], None]) -> None:
    """An answer never changes: the late worker may have acted on it already."""
    define([for_signal])
    workflow = work(submit())
    meanwhile(workflow)
    run_while_it_writes([(ANSWERS, ["found", FOUND, workflow.pk])])
    workflow.refresh_from_db()
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 9)


def test_a_decision_that_it_is_still_writing_is_that_of_the_next_worker() -> None:
    define([for_person])
    workflow = work(submit())
    name = ManualTask.objects.get().signal_name
    decided = {"approved": True, "by": "ada", "reason": ""}
    store.store(source="console", dedupe_key=name, name=name, workflow_id=workflow.pk, payload=decided)
    waking.wake(workflow.pk)
    run_while_it_writes([(ANSWERS, ["approved", APPROVED, workflow.pk]), (CLOSES, [workflow.pk])])
    workflow.refresh_from_db()
    assert (workflow.status, workflow.context["text"]) == ("COMPLETE", "as the first one has written it")


@pytest.mark.parametrize(
    ("outcome", "result", "end"),
    [("expired", "{}", ("FAILED", "wait_expired")), ("ended", '{"children": []}', ("COMPLETE", ""))],
)
def test_an_end_of_children_that_it_is_still_writing_is_that_of_the_next_worker(
    outcome: str, result: str, end: tuple[str, str]
) -> None:
    """A deadline stands before the children that have ended since."""
    define([for_children])
    workflow = submit()
    with engine.another_connection() as other:
        other.execute(BEGINS.encode(), [workflow.pk, "children"])
    make_due(workflow)
    run_while_it_writes([(ANSWERS, [outcome, result, workflow.pk])])
    workflow.refresh_from_db()
    assert (workflow.status, workflow.last_error_code) == end


def test_children_that_it_is_still_starting_in_another_order_are_those_of_the_next_worker() -> None:
    """Neither waits for a child of the other's: that would be a deadlock, were the other to wait for one of its own."""
    define([for_two_children])
    workflow = submit()
    begins = [(BEGINS, [workflow.pk, "children"]), (STARTS, [workflow.pk, "second"])]
    run_while_it_writes(begins, then=[(STARTS, [workflow.pk, "first"])])
    workflow.refresh_from_db()
    assert (workflow.status, workflow.context["number"]) == ("COMPLETE", 2)
    assert list(workflow.children.order_by("id").values_list("child_key", flat=True)) == ["second", "first"]
