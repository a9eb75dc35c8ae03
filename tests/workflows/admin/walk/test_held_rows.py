"""No page of the console hangs: not while workers hold workflows, and not while somebody is writing about them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from tests import engine
from tests.workflows.admin.conftest import crawl
from tests.workflows.admin.walk.scene import Scene
from tests.workflows.admin.walk.stored import undone
from tests.workflows.admin.walk.table import form_of, lines
from tests.workflows.admin.walk.urls import address
from workflows.operations import guards

pytestmark = pytest.mark.django_db(transaction=True)

# A worker holds the row for as long as its steps take.
OF_WORKERS = ["workflows_workflow"]
# Of these it writes rows beside it, one statement at a time; a session in which somebody has forgotten a transaction
# holds them for longer.
OF_THE_ATTEMPT_LOG = [
    *("workflows_attempt", "workflows_effect", "workflows_wait", "workflows_manualtask", "workflows_signal"),
    *("workflows_followup", "workflows_service", "workflows_apikey"),
]

# Seconds: what a person waits for without a thought that it hangs.
IN_TIME = 3.0


@contextmanager
def held(tables: list[str]) -> Iterator[None]:
    """Another session holds every row of these tables, as one that updates them does."""
    with engine.another_connection() as other, other.transaction():
        for table in tables:
            other.execute(f"SELECT FROM {table} FOR NO KEY UPDATE")
        yield


@contextmanager
def hanging_is_an_error() -> Iterator[None]:
    """A statement that waits for longer is cancelled, and the request fails."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = '{IN_TIME:.0f}s'")
    yield
    connection.close()


def errors(html: str) -> list[str]:
    return re.findall(r'<li class="error">(.*?)</li>', html)


@pytest.mark.parametrize("tables", [OF_WORKERS, OF_THE_ATTEMPT_LOG], ids=["by workers", "by the attempt log"])
def test_every_page_is_shown_while_rows_are_held(tables: list[str]) -> None:
    client = Scene("superuser").sign_in()
    with held(tables), hanging_is_an_error():
        assert len(crawl(client)) > 40


@pytest.mark.parametrize("tables", [OF_WORKERS, OF_THE_ATTEMPT_LOG], ids=["by workers", "by the attempt log"])
def test_every_form_is_answered_in_time_while_rows_are_held(
    tables: list[str], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """With what was asked for, or with a sentence that says why not."""
    monkeypatch.setattr(guards, "LOCK_TIMEOUT", "100ms")
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    scene = Scene("superuser")
    client, told = scene.sign_in(), {}
    forms = [(line, form_of(line, scene)) for line in lines() if line.url.startswith("workflows_")]
    with held(tables), hanging_is_an_error():
        for line, form in forms:
            where, asked = address(line.url, *scene.of(line.row)), time.monotonic()
            with undone():
                answer = client.post(where, form, follow=True)
                assert answer.status_code in (200, 403, 405), f"{line.label}: {answer.status_code}"
                told[line.label] = errors(answer.content.decode())
            assert time.monotonic() - asked < IN_TIME, line.label
    assert BUSY in str(told), "somebody was to meet a row that is held"


BUSY = "try again in a moment"
