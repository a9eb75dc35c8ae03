import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import RFC_4122, UUID, uuid4

import pytest
from django.db import DataError, connection
from pydantic import BaseModel

from tests.processes import until
from workflows import silence
from workflows.definition import WorkflowDefinition
from workflows.intake.submissions import Entry, KeyReused, enter, new_key
from workflows.models import Workflow
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.jsonb import Document, parse

pytestmark = pytest.mark.django_db


def step(*, workflow: Workflow, context: Any) -> None:
    pass


def definition(linking_id: str = "patient.account") -> WorkflowDefinition:
    return WorkflowDefinition(
        name="test",
        steps=[step],
        context_class=BaseModel,
        queue="pool",
        linking_id=linking_id,
        expires_after=timedelta(hours=1),
    )


def send(payload: str, *, key: UUID, client: str = "shop") -> Entry:
    return enter(definition(), idempotency_key=key, payload=parse(payload.encode()), submitted_by=client)


def test_nothing_that_the_engine_adds_runs_a_trigger() -> None:
    """None that notifies, for one: no statement of ours would show it, and all commits would wait for each other.

    What is on record has triggers that refuse to change it: see tests/workflows/operations/test_looking.py. Others look
    at what is deleted: tests/workflows/features/retention/test_rows.py. Those of what people decide are not run by the
    engine, nor a hundred times a day: test_corrections.py, test_two_people.py, test_proposals.py, test_deputies.py.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT tgrelid::regclass::text, tgname FROM pg_trigger
                WHERE NOT tgisinternal AND tgrelid <> ALL (
                          '{workflows_correction,workflows_confirmation,workflows_proposal,workflows_deputy}'::regclass[])
                  AND (tgtype & 4 <> 0 OR tgtype & 16 <> 0 AND tgfoid <> ALL (
                          '{workflows_stays,workflows_refuse_deputy}'::regproc[]))
               UNION SELECT tablename, rulename FROM pg_rules WHERE tablename LIKE 'workflows\\_%'"""
        )
        assert cursor.fetchall() == []


def test_another_definition_under_the_same_key_is_refused() -> None:
    key = uuid4()
    send("{}", key=key)
    other = WorkflowDefinition(name="other", steps=[step], context_class=BaseModel)
    with pytest.raises(KeyReused):
        enter(other, idempotency_key=key, payload=parse(b"{}"), submitted_by="shop")


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"patient": {"account": "acc-1"}}, "acc-1"),
        ({"patient": {"account": "x" * 200}}, "x" * 200),
        ({"patient": {"account": "x" * 201}}, None),
        ({"patient": {"account": ""}}, None),
        ({"patient": {"account": 1}}, "1"),
        ({"patient": {"account": 7.0}}, "7"),
        ({"patient": {"account": 12.50}}, "12.5"),
        ({"patient": {"account": True}}, "true"),
        ({"patient": {"account": 10**5000}}, None),
        ({"patient": {"account": {}}}, None),
        ({"patient": ["account"]}, None),
        ({"patient": "account"}, None),
        ({}, None),
    ],
)
def test_a_linking_id_that_does_not_fit_is_none(payload: dict[str, Any], expected: str | None) -> None:
    assert definition().linking_id_in(payload) == expected


def test_a_definition_may_name_no_linking_id() -> None:
    assert definition(linking_id="").linking_id_in({"": "x"}) is None


@pytest.mark.django_db(transaction=True)
def test_what_postgresql_refuses_after_all_is_a_data_error_and_leaves_the_connection_usable() -> None:
    key = uuid4()
    unforeseen = Document(r'{"a": "\u0000"}', {"a": "\x00"})
    with pytest.raises(DataError):
        enter(definition(), idempotency_key=key, payload=unforeseen, submitted_by="shop")
    assert not Workflow.objects.exists()
    assert not send("{}", key=key).replayed


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_died_unnoticed_is_replaced_without_an_error() -> None:
    send("{}", key=uuid4())
    _from_elsewhere("SELECT pg_terminate_backend(%s, 5000)", [_backend_pid()])
    key = uuid4()
    assert not send("{}", key=key).replayed
    assert Workflow.objects.filter(idempotency_key=key).count() == 1


def nobody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s",
            [connection.settings_dict["NAME"]],
        )
        return cursor.fetchone() == (0,)


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_waits_for_a_lock_is_given_up_and_cancelled() -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN; LOCK TABLE workflows_workflow IN ACCESS EXCLUSIVE MODE")
            held.set()
            release.wait(20)
            cursor.execute("ROLLBACK")
        connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    try:
        started = time.monotonic()
        with pytest.raises(DatabaseUnavailable):
            query_in_time(lambda: Workflow.objects.count(), seconds=0.5)
        assert 0.4 < time.monotonic() - started < 3
        until(nobody_waits_for_a_lock)  # the server takes a moment to cancel it
        assert not silence.is_since(started), "the other sessions of this process go on"
    finally:
        release.set()
        holder.join()
    assert query_in_time(lambda: Workflow.objects.count()) == 0


def _backend_pid() -> int:
    assert connection.connection is not None
    return connection.connection.info.backend_pid


def _from_elsewhere(sql: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    """What a statement returns on a connection of its own."""

    def query() -> list[tuple[Any, ...]]:
        with closing(connection), connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall()

    with ThreadPoolExecutor(1) as other:
        return other.submit(query).result()


def test_a_key_that_nobody_gave_begins_with_the_time_and_is_like_no_other() -> None:
    before = time.time_ns() // 1_000_000
    keys = [new_key() for _ in range(2_000)]
    after = time.time_ns() // 1_000_000
    assert {(each.version, each.variant) for each in keys} == {(7, RFC_4122)}
    assert {before <= each.int >> 80 <= after for each in keys} == {True}
    assert len({each.int & (1 << 62) - 1 for each in keys}) == len(keys)
