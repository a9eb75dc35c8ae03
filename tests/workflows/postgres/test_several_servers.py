"""Several servers in DATABASE_URL: one that is late is tried last."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import patch

import pytest
from django.db import connection

from tests.servers import Proxy
from workflows import silence
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.statements import fetch_row

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@contextmanager
def servers(*ports: int) -> Iterator[None]:
    """This thread's connection tries these ports of this machine, in this order."""
    parameters = connection.get_connection_params()
    connection.close()
    several = {"HOST": ",".join(["127.0.0.1"] * len(ports)), "PORT": ",".join(map(str, ports))}
    with patch.object(connection, "settings_dict", {**connection.settings_dict, **several}):

        def there() -> dict[str, object]:
            settings = connection.settings_dict
            return {**parameters, "host": settings["HOST"], "port": settings["PORT"], "connect_timeout": 2}

        with patch.object(connection, "get_connection_params", there):
            yield
            connection.close()


def ask() -> None:
    assert query_in_time(lambda: fetch_row("SELECT 1"), seconds=1.0) == (1,)


def test_a_frozen_server_that_is_the_first_of_them_is_waited_for_once() -> None:
    with Proxy() as good, socket.create_server(("127.0.0.1", 0)) as frozen, servers(frozen.getsockname()[1], good.port):
        for _ in range(3):
            ask()
            connection.close()
        assert_was_tried_once(frozen)


def test_a_late_server_that_takes_over_is_late_no_more() -> None:
    with Proxy() as good, socket.create_server(("127.0.0.1", 0)) as frozen, servers(good.port, frozen.getsockname()[1]):
        ask()
        silence.note_late(connection.connection)
        for _ in range(3):
            connection.close()
            ask()
        assert_was_tried_once(frozen)


def assert_was_tried_once(frozen: socket.socket) -> None:
    frozen.setblocking(False)
    frozen.accept()[0].close()
    with pytest.raises(BlockingIOError):
        frozen.accept()


def test_a_server_that_refuses_at_once_keeps_its_place() -> None:
    with Proxy() as good, socket.socket() as refuses:
        refuses.bind(("127.0.0.1", 0))  # and does not listen
        with servers(refuses.getsockname()[1], good.port):
            as_given = connection.settings_dict["PORT"]
            for _ in range(2):
                ask()
                connection.close()
            assert connection.settings_dict["PORT"] == as_given


def test_a_server_that_is_only_slow_keeps_its_place() -> None:
    """The other one may be an old primary, whose commits are lost."""
    with Proxy() as first, Proxy() as second, servers(first.port, second.port):
        ask()
        first.freeze()
        with suppress(DatabaseUnavailable):
            ask()
        ask()
        assert second.taken == 0
