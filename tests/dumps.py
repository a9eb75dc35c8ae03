"""DUMPS: all that the database of the tests has, as `pg_dump` writes it; and a database that one was read into."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from psycopg.conninfo import make_conninfo

from tests.postgres import embedded_server


def dump(*options: str) -> str:
    """Without \\restrict and \\unrestrict: the key that they name is random, and may hold any word of three letters."""
    lines = _run("pg_dump", *options).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("\\restrict ", "\\unrestrict ")))


@contextmanager
def restored(text: str) -> Iterator[None]:
    """Inside, Django's connection is to another database, which a dump was read into."""
    before, name = connection.settings_dict["NAME"], f"restored_{os.getpid()}"
    _recreate(name)
    connection.settings_dict["NAME"] = name
    try:
        _run("psql", "-q", "-v", "ON_ERROR_STOP=1", input=text)
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before
        _recreate(name, drop_only=True)


def _recreate(name: str, *, drop_only: bool = False) -> None:
    connection.close()
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        if not drop_only:
            cursor.execute(f"CREATE DATABASE {name}")


def _run(program: str, *arguments: str, input: str | None = None) -> str:
    """What a program of the server's version says."""
    connection.ensure_connection()
    info = connection.connection.info
    # Not all of info.dsn: an older program knows fewer options.
    url = make_conninfo(host=info.host, port=info.port, user=info.user, password=info.password, dbname=info.dbname)
    server = embedded_server()
    command = [str(server.program(program)) if server else program, "-d", url, *arguments]
    done = subprocess.run(command, input=input, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
