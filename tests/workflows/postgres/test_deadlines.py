"""The deadline of a query begins when its connection is there, whichever of several hosts that leads to."""

import socket
from unittest.mock import patch

import pytest
from django.db import connection

from workflows.postgres.deadlines import query_in_time
from workflows.postgres.statements import fetch_row

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def test_a_host_that_is_cut_off_takes_nothing_of_the_time_for_a_query() -> None:
    """As a primary that was cut off, and is the first host of DATABASE_URL: libpq waits two seconds for it."""
    parameters = connection.get_connection_params()
    connection.ensure_connection()
    host, port = connection.connection.info.host, connection.connection.info.port
    connection.close()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        several = {
            "host": f"127.0.0.1,{host}",
            "port": f"{silent.getsockname()[1]},{port}",
            "connect_timeout": 2,
        }
        with patch.object(connection, "get_connection_params", lambda: {**parameters, **several}):
            assert query_in_time(lambda: fetch_row("SELECT 1"), seconds=1.0) == (1,)
            connection.close()
