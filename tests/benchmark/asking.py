"""Pages of the console, each asked for in a process with the settings of production that has answered nothing yet."""

from __future__ import annotations

import logging
import os
import re
from statistics import median
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from onboarding.workflow import SEARCH_KEYS
from tests.benchmark.database import METRICS_TOKEN
from tests.benchmark.pages import MANY, ONE, TIMES, USERS
from tests.benchmark.processor import seconds_of
from tests.plans import Plan, explained
from workflows.models import SearchKeyHash
from workflows.search.search_keys import hashes_to_store, keys


def ask(path: str, data: dict[str, str] | None, look: str = "") -> dict[str, Any]:
    """Of each user: the answer's status, seconds cold and warm, statements, and the worst of these with its buffers.

    The first time is a cold one, with connecting, and with what Django loads when it is first needed.
    """
    logging.disable()  # support is refused some pages
    return {name: _of(name, path, data, look) for name in USERS}


def _of(name: str, path: str, data: dict[str, str] | None, look: str) -> dict[str, Any]:
    client = Client(headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    client.force_login(User.objects.get(username=name))
    if look and (page := client.get(path, secure=True)).status_code == 200:
        shows = re.findall('data-look="([^"]*)"', page.content.decode()) if look == "seen" else ["other"]
        client.defaults.update({"HTTP_X_BACKGROUND": "1", "HTTP_X_SEEN": "".join(shows)})
    connection.close()
    status, cold = _ask(client, path, data)
    if status not in (200, 204) and not (status == 302 and data):  # a form leads on; a page would ask to sign in again
        return {"status": status}
    before = _processor()
    warm = median(_ask(client, path, data)[1] for _ in range(TIMES))
    processor = (_processor() - before) / TIMES
    with CaptureQueriesContext(connection) as captured:
        _ask(client, path, data)
        statements = len(captured)
    plans: list[Plan] = []
    with explained(plans):
        _ask(client, path, data)
    worst = max(plans, default=Plan(0, [], ""))  # a scrape's statements are prepared: they pass `explained` by
    told = {"status": status, "cold": cold, "warm": warm, "processor": processor, "statements": statements}
    return {**told, "buffers": worst.buffers, "worst": worst.sql}


def _ask(client: Client, path: str, data: dict[str, str] | None) -> tuple[int, float]:
    began = perf_counter()
    response = client.get(path, secure=True) if data is None else client.post(path, data, secure=True)
    if response.headers.get("Location", "").startswith(f"{path}?"):  # to what was found
        response = client.get(response.headers["Location"], secure=True)
    for _ in response if response.streaming else ():
        pass  # a file is made while it is sent
    return response.status_code, perf_counter() - began


def _processor() -> float:
    """Seconds of processor time that this process and its session on the server have used so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (session,) = cursor.fetchone()
    return seconds_of([os.getpid(), session])


def prepare() -> None:
    """Store what only Django can make: the search keys of a patient with one submission, and of one with sixty."""
    for email, first, number in (ONE, 1, 1), (MANY, 100, 60):
        SearchKeyHash.objects.bulk_create(
            SearchKeyHash(hash=each, workflow_id=first + step, key_id=keys()[0].id)
            for each in hashes_to_store(SEARCH_KEYS, {"email": email})
            for step in range(number)
        )
