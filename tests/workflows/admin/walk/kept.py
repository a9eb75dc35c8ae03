"""Where a marker is looked for: pages, log lines as they are written, and the columns that people are shown."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from django.apps import apps
from django.db import connection, connections

from tests import postgres
from tests.data_table import documented
from tests.engine import another_connection


def leaks(text: str, markers: Collection[str]) -> list[str]:
    """The markers that stand in a text, in any case."""
    return [marker for marker in markers if marker.casefold() in text.casefold()]


def shown_columns() -> str:
    """All that is stored in the tables of the engine, without the columns that are for data: docs/data.md names them.

    No page shows their values, but facts to whoever decides, and what the definition calls public.
    """
    return _columns_without({table: columns.in_clear for table, columns in documented().items()})


def every_column() -> str:
    """All that is stored in the tables of the engine."""
    return _columns_without({})


def _columns_without(left_out: Mapping[str, Collection[str]]) -> str:
    said = []
    with connection.cursor() as cursor:
        for model in apps.get_app_config("workflows").get_models():
            table = model._meta.db_table
            hidden = left_out.get(table, ())
            shown = [field.column for field in model._meta.concrete_fields if field.column not in hidden]
            columns = ", ".join(f'"{column}"::text' for column in shown)
            cursor.execute(f"SELECT '{table}', {columns} FROM {table}")
            said += [" ".join(map(str, row)) for row in cursor.fetchall()]
    return "\n".join(said)


@contextmanager
def log_lines() -> Iterator[io.StringIO]:
    """Every line that is logged meanwhile, at every level, as the project's own handler writes it."""
    root = logging.getLogger()
    handler = logging.StreamHandler(io.StringIO())
    (ours,) = (each for each in root.handlers if each.name == "stderr")
    handler.setFormatter(ours.formatter)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


# All that PostgreSQL can log of a statement. What a session sets beats it.
TALKATIVE = {
    "log_statement": "all",
    "log_min_duration_statement": "0",
    "log_parameter_max_length": "-1",
    "log_parameter_max_length_on_error": "-1",
    "log_error_verbosity": "verbose",
}


@contextmanager
def logged_by_the_server() -> Iterator[Callable[[], str]]:
    """What the embedded server logs meanwhile of all sessions of this database; of another server nothing is known."""
    server = postgres.embedded_server()
    before = server.log.stat().st_size if server else 0
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with another_connection() as other:
        try:
            for name, value in TALKATIVE.items():
                other.execute(f"ALTER DATABASE {database} SET {name} = '{value}'")
            connections.close_all()
            yield lambda: server.log.read_bytes()[before:].decode(errors="replace") if server else ""
        finally:
            other.execute(f"ALTER DATABASE {database} RESET ALL")
            connections.close_all()
