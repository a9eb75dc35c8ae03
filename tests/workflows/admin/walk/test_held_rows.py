"""No page of the console hangs: not while workers hold workflows, and not while somebody is writing about them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test import Client

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
    *("workflows_followup", "workflows_service", "workflows_pace", "workflows_apikey"),
]

# Seconds: what a person waits for without a thought that it hangs.
IN_TIME = "3s"


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
        cursor.execute(f"SET statement_timeout = '{IN_TIME}'")
    yield
    connection.close()


def test_every_page_and_form_is_answered_in_time_while_rows_are_held(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """A form with what was asked for, or with a sentence that says why not."""
    monkeypatch.setattr(guards, "LOCK_TIMEOUT", "50ms")
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    scene = Scene()
    client = scene.sign_in("superuser")
    with hanging_is_an_error():
        with held([*OF_WORKERS, *OF_THE_ATTEMPT_LOG]):
            assert len(crawl(client, filtered=False)) > 40
        for tables in (OF_WORKERS, OF_THE_ATTEMPT_LOG):
            with held(tables):
                assert BUSY in "".join(told_by_forms(client, scene)), "somebody was to meet a row that is held"


def told_by_forms(client: Client, scene: Scene) -> Iterator[str]:
    """The errors that are told where the form is sent which would do it."""
    for line in lines():
        if line.url.startswith("workflows_") and line.post["superuser"] in "Ap":
            form = form_of(line, scene)
            with undone():
                answer = client.post(address(line.url, *scene.of(line.row)), form)
                assert answer.status_code in (200, 302), f"{line.label}: {answer.status_code}"
                yield from map(str, get_messages(answer.wsgi_request))


BUSY = "try again in a moment"
