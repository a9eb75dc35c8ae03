"""A real intake announces what it has stored, and goes on without its announcements where they cannot be made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.acceptance.test_intake import post
from tests.engine import another_connection
from tests.servers import database_url, gunicorn
from workflows.ingress import api_keys
from workflows.models import Workflow
from workflows.signals.notify import CHANNEL

pytestmark = pytest.mark.django_db(transaction=True)

ANNOUNCERS = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE query LIKE '%pg_notify%' AND pid <> pg_backend_pid() AND datname = current_database()"""


def announcement(session: Any) -> list[str]:
    return [each.payload for each in session.notifies(timeout=30, stop_after=1)]


@pytest.mark.parametrize("entry", ["config.intake", "config.wsgi"])
def test_a_submission_is_announced_and_accepted_whatever_becomes_of_that(entry: str, tmp_path: Path) -> None:
    key = api_keys.create("shop")
    with gunicorn(entry, tmp_path, url=database_url()) as server, another_connection() as session:
        session.execute(f"LISTEN {CHANNEL}")
        assert post(server, key).status == 202
        assert announcement(session) == ["default"]
        with connection.cursor() as cursor:
            cursor.execute(ANNOUNCERS)
        for _ in range(5):
            assert post(server, key).status == 202
    assert Workflow.objects.count() == 6
