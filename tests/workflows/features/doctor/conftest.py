from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection

from config.embedded.server import DATABASE, PORT, USER, Server
from tests.config.embedded.servers import a_folder_that_all_can_enter
from tests.postgres import UNSAFE

# What brings about the troubles that a server of its own is needed for.
SETTINGS = {
    **UNSAFE,
    "autovacuum": "off",
    "archive_mode": "on",
    "max_connections": "10",
    "max_prepared_transactions": "2",
    "wal_level": "logical",
}


@contextmanager
def connected_to(server: Server) -> Iterator[None]:
    """The default connection leads to the server's own database, which has no table."""
    address = {"host": str(server.socket_folder()), "port": str(PORT), "user": USER, "dbname": DATABASE, "password": ""}
    parameters: dict[str, Any] = {**connection.get_connection_params(), **address}
    connection.close()
    with patch.object(connection, "get_connection_params", lambda: dict(parameters)):
        yield
        connection.close()


@pytest.fixture(scope="module")
def badly_set_up() -> Iterator[Server]:
    with a_folder_that_all_can_enter() as folder:
        server = Server(folder / "postgres")
        server.start(**SETTINGS)
        try:
            yield server
        finally:
            server.remove()


@pytest.fixture
def bad_server(badly_set_up: Server, django_db_blocker: Any) -> Iterator[Server]:
    """A server of its own that is set up badly, and that the default connection leads to."""
    with django_db_blocker.unblock(), connected_to(badly_set_up):
        yield badly_set_up
