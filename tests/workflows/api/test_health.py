import time
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from tests.servers import connecting_to


@pytest.fixture
def _database_away(transactional_db: None) -> Iterator[None]:
    with connecting_to(port=1):
        yield


def test_alive_needs_no_database(client: Client) -> None:  # pytest-django would refuse it one
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


@pytest.mark.django_db
def test_ready_with_a_migrated_database(client: Client) -> None:
    assert client.get("/readyz").status_code == 200
    head = client.head("/readyz")
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", "19")


@pytest.mark.django_db
def test_not_ready_before_its_migrations(client: Client) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="workflows").order_by("-id")[:1].get().delete()
    response = client.get("/readyz")
    assert (response.status_code, response.json()["code"]) == (503, "migrations_missing")
    assert response.headers["Retry-After"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_database_away")
def test_not_ready_without_a_database(client: Client) -> None:
    started = time.monotonic()
    response = client.get("/readyz")
    assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
    assert response.headers["Retry-After"] == "5"
    assert time.monotonic() - started < 5


@pytest.mark.django_db(transaction=True)
def test_not_ready_on_a_read_only_server_but_a_session_that_was_kept_is_replaced_first(client: Client) -> None:
    read_only = "default_transaction_read_only"
    with connection.cursor() as cursor:
        cursor.execute(f"SET {read_only} = on")
    assert client.get("/readyz").status_code == 200
    options = {**connection.settings_dict["OPTIONS"], "options": f"-c {read_only}=on"}
    connection.close()
    with patch.dict(connection.settings_dict, OPTIONS=options):
        response = client.get("/readyz")
        assert (response.status_code, response.json()["code"]) == (503, "database_unavailable")
        connection.close()
