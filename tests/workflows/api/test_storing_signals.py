"""Signals and the database: no text of a statement shows them, and no failure loses one."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.engine import sweep
from tests.processes import until
from tests.servers import Proxy, connecting_to
from tests.workflows.api.answers import assert_problem
from tests.workflows.api.signals import CANARY, DELIVERED, deliver, tell, waiting
from workflows.ingress import api_keys, webhooks
from workflows.models import Signal
from workflows.postgres import deadlines
from workflows.signals import waking

pytestmark = pytest.mark.django_db


@pytest.mark.django_db(transaction=True)
def test_a_payload_is_never_in_the_text_of_a_statement(client: Client) -> None:
    """Looked at while the insert waits for another session's signal of the same id."""
    secret = webhooks.create("parcels")

    def send() -> Any:
        with closing(connection):
            return deliver(Client(), secret, {**DELIVERED, "payload": {"a": CANARY}})

    with psycopg.connect(**connection.get_connection_params()) as other, ThreadPoolExecutor(1) as pool:
        other.execute(
            "INSERT INTO workflows_signal (source, dedupe_key, name, linking_id) VALUES ('parcels', 'msg_1', 'a', 'a')"
        )
        sent = pool.submit(send)
        waits_for_us = [other.info.backend_pid]
        blocked = "NOT granted AND %s = ANY (pg_blocking_pids(pid))"
        until(lambda: sent.done() or other.execute(f"SELECT 1 FROM pg_locks WHERE {blocked}", waits_for_us).fetchall())
        # Only now: of a statement that has just started to wait, the first look could see the text of the one before.
        shown = other.execute(
            "SELECT query FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", waits_for_us
        ).fetchall()
        other.rollback()
    [(statement,)] = shown
    assert "INSERT INTO workflows_signal" in statement
    assert CANARY not in statement
    assert sent.result().status_code == 202


@pytest.mark.django_db(transaction=True)
def test_a_linking_id_is_never_in_the_text_of_a_statement(client: Client) -> None:
    """It may be an e-mail address. (What Django has not captured was sent with its parameters beside it.)"""
    secret, workflow = webhooks.create("parcels"), waiting(linking_id=CANARY)
    with CaptureQueriesContext(connection) as queries:
        assert deliver(client, secret, {**DELIVERED, "linking_id": CANARY}).status_code == 202
    workflow.refresh_from_db()
    assert workflow.created_at < workflow.invisible_until <= timezone.now()
    assert not any(CANARY in query["sql"] for query in queries)


@pytest.mark.django_db(transaction=True)
def test_a_wake_up_that_fails_takes_nothing_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, workflow = webhooks.create("parcels"), waiting()

    def fail(*args: Any) -> None:
        raise OperationalError("the server is gone")

    monkeypatch.setattr(waking, "wake_for", fail)
    body = {"name": "parcel.delivered", "workflow": workflow.key}
    assert deliver(client, secret, body).json() == {"replayed": False}
    monkeypatch.undo()
    assert deliver(client, secret, body).json() == {"replayed": True}
    assert sweep() == 1


@pytest.mark.django_db(transaction=True)
def test_a_commit_whose_answer_was_lost_is_told_once(client: Client) -> None:
    secret, workflow = webhooks.create("parcels"), waiting()
    body = {"name": "parcel.delivered", "workflow": workflow.key}
    with Proxy() as proxy, connecting_to(proxy.port):
        assert deliver(client, secret, body, delivery_id="1").status_code == 202  # from here on the connection is known
        proxy.drops_answers_about, proxy.answers_to_drop = b"workflows_signal", 1
        assert deliver(client, secret, body, delivery_id="2").status_code == 202
        assert proxy.answers_dropped == 1
    assert Signal.objects.filter(dedupe_key="2").count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_or_falls_silent_is_503_and_the_same_again_is_harmless(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(deadlines.query_in_time.__kwdefaults__, "seconds", 0.5)
    secret, workflow, key = webhooks.create("parcels"), waiting(), api_keys.create("shop")
    body = {"name": "parcel.delivered", "workflow": workflow.key}
    with Proxy() as proxy, connecting_to(proxy.port):
        assert deliver(client, secret, body, delivery_id="1").status_code == 202
        assert tell(client, key, workflow.key, {"name": "a"}).status_code == 202
        proxy.fall_silent()
        for _ in range(2):  # it is not taken for alive because it accepts connections
            assert_problem(deliver(client, secret, body, delivery_id="2"), 503, "database_unavailable")
        proxy.cut()
        assert_problem(deliver(client, secret, body, delivery_id="2"), 503, "database_unavailable")
        assert_problem(tell(client, key, workflow.key, {"name": "a"}), 503, "database_unavailable")
        proxy.connect()
        assert deliver(client, secret, body, delivery_id="2").status_code == 202
    assert Signal.objects.filter(dedupe_key="2").count() == 1
