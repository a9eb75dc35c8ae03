"""python -m tests.benchmark.asking: ask for pages of the console, each of a process of its own; print what it took.

Reads a page's path, and what is posted to it, from each line of stdin as JSON. The process that is forked for it has
the settings of production, and has answered nothing yet: so the first time is a cold one, with connecting, and with
what Django loads when it is first needed. With `--prepare` it stores what the pages need and only Django can make.
"""

from __future__ import annotations

import json
import os
import sys
from statistics import median
from time import perf_counter
from typing import Any

import django
import psutil

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from django.contrib.auth.models import User  # noqa: E402 (needs the settings)
from django.db import connection  # noqa: E402
from django.test import Client  # noqa: E402
from django.test.utils import CaptureQueriesContext  # noqa: E402

from onboarding.workflow import SEARCH_KEYS  # noqa: E402
from tests.benchmark.pages import MANY, ONE, TIMES, USERS  # noqa: E402
from tests.plans import Plan, explained  # noqa: E402
from workflows.models import SearchKeyHash  # noqa: E402
from workflows.search.search_keys import hashes_to_store, keys  # noqa: E402


def main() -> int:
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            print(json.dumps(measure(**json.loads(line))), flush=True)  # noqa: T201 (what the benchmark reads)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            return 1
    return 0


def measure(path: str, data: dict[str, str] | None) -> dict[str, Any]:
    """Of each user: the answer's status, seconds cold and warm, statements, and the worst of these with its buffers."""
    return {name: _of(name, path, data) for name in USERS}


def _of(name: str, path: str, data: dict[str, str] | None) -> dict[str, Any]:
    client = Client()
    client.force_login(User.objects.get(username=name))
    connection.close()
    status, cold = _ask(client, path, data)
    if status not in (200, 302):
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
    worst = max(plans)
    return {
        "status": status,
        "cold": cold,
        "warm": warm,
        "processor": processor,
        "statements": statements,
        "buffers": worst.buffers,
        "worst": worst.sql,
    }


def _ask(client: Client, path: str, data: dict[str, str] | None) -> tuple[int, float]:
    began = perf_counter()
    response = client.get(path, secure=True) if data is None else client.post(path, data, secure=True)
    return response.status_code, perf_counter() - began


def _processor() -> float:
    """Seconds of processor time that this process and its session on the server have used so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (session,) = cursor.fetchone()
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in (os.getpid(), session))


def prepare() -> None:
    """The search keys of a patient with one submission, and of one with sixty."""
    for email, first, number in (ONE, 1, 1), (MANY, 100, 60):
        SearchKeyHash.objects.bulk_create(
            SearchKeyHash(hash=each, workflow_id=first + step, key_id=keys()[0].id)
            for each in hashes_to_store(SEARCH_KEYS, {"email": email})
            for step in range(number)
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["--prepare"]:
        prepare()
    else:
        sys.exit(main())
