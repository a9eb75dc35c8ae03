"""The intake, its sessions and its neighbours' transactions end at any moment: 202 means stored, and stored once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from tests import engine
from tests.acceptance.test_intake import connected, post
from tests.processes import children_of, meanwhile
from tests.servers import Gunicorn, database_url, gunicorn
from workflows.models import Workflow

pytestmark = pytest.mark.django_db(transaction=True)

NAME = "intake-under-fire"
SENDERS, EACH = 8, 30


@pytest.fixture
def server(transactional_db: None, tmp_path: Path) -> Iterator[Gunicorn]:
    with gunicorn("config.intake", tmp_path, PGAPPNAME=NAME) as server:
        yield server


def send_all(server: Gunicorn, key: str) -> tuple[dict[str, int], int]:
    """The id that each submission was answered with, and how often one had to be sent again."""
    again = 0

    def send(sender: int) -> dict[str, int]:
        nonlocal again
        stored: dict[str, int] = {}
        for _ in range(EACH):
            name = str(uuid4())
            while name not in stored:
                with suppress(OSError, HTTPException), connected(server) as http:
                    answer = post(http, key, json.dumps({"of": name}), name)
                    if answer.status == 202:
                        stored[name] = answer.json()["id"]
                        assert Workflow.objects.filter(pk=stored[name], idempotency_key=name).exists()
                        break
                    assert answer.status == 503, answer.content
                again += 1
                time.sleep(0.05)
        connection.close()
        return stored

    with ThreadPoolExecutor(SENDERS) as pool:
        found = list(pool.map(send, range(SENDERS)))
    return {name: pk for each in found for name, pk in each.items()}, again


def test_whatever_was_answered_with_202_is_stored_when_its_processes_are_killed(server: Gunicorn, key: str) -> None:
    url = database_url()

    def kill_them_with_requests_in_hand() -> None:
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE workflows_workflow IN SHARE MODE")
            engine.until_blocked()
            for process in children_of(server.process.pid):
                os.kill(process, signal.SIGKILL)

    with meanwhile(kill_them_with_requests_in_hand, every=0.2, times=1):
        stored, again = send_all(server, key)
    assert again > 0  # else nobody was hit
    ensure_each_is_stored_once(stored)


def test_whatever_was_answered_with_202_is_stored_when_sessions_are_ended(server: Gunicorn, key: str) -> None:
    url = database_url()

    def end_sessions() -> None:
        with psycopg.connect(url, autocommit=True) as other:
            ours = "application_name = %s AND datname = current_database()"
            other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}", [NAME])

    with meanwhile(end_sessions, every=0.05, times=1000):
        stored, _ = send_all(server, key)
    ensure_each_is_stored_once(stored)


def ensure_each_is_stored_once(stored: dict[str, int]) -> None:
    assert len(stored) == SENDERS * EACH
    rows = {str(row.idempotency_key): row for row in Workflow.objects.all()}
    assert {name: row.pk for name, row in rows.items()} == stored
    assert all(row.payload == {"of": name} for name, row in rows.items())


def test_a_key_that_another_transaction_holds_holds_up_no_other_client(server: Gunicorn, key: str) -> None:
    held = str(uuid4())
    took: list[float] = []

    def send(_: int) -> None:
        with connected(server) as http:
            for _ in range(20):
                began = time.monotonic()
                assert post(http, key).status == 202
                took.append(time.monotonic() - began)

    with psycopg.connect(database_url()) as other, ThreadPoolExecutor(9) as pool:
        other.execute(
            "INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload) VALUES (%s, 'x', '{}')", [held]
        )
        stuck = pool.submit(lambda: post(server, key, idempotency_key=held))
        list(pool.map(send, range(8)))
        assert stuck.result(30).status == 503
        other.rollback()
    # But for those that were in hand as it came; and once more, should a process stall.
    assert sum(seconds >= 1 for seconds in took) <= 2 * 8
    assert Workflow.objects.exclude(idempotency_key=held).count() == 160
