"""What is stored, as one checksum a table, and requests that leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.apps import apps
from django.db import connection, transaction

# Of the visit itself: who is signed in, since when, and from where.
OF_THE_VISIT = ("django_session", "axes_")


def stored() -> dict[str, str]:
    """The rows of each table, as their number and a checksum."""
    tables = sorted({model._meta.db_table for model in apps.get_models(include_auto_created=True)})
    of_each = " UNION ALL ".join(
        f"SELECT '{table}', count(*) || ' rows, ' || coalesce(sum(hashtextextended(t::text, 0)), 0) FROM {table} t"
        for table in tables
        if not table.startswith(OF_THE_VISIT)
    )
    with connection.cursor() as cursor:
        cursor.execute(of_each)
        return dict(cursor.fetchall())


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [table for table in before if before[table] != after[table]]


@contextmanager
def undone() -> Iterator[None]:
    """What is written meanwhile is rolled back. The operations may start their transactions in it as in a test's."""
    around = transaction.atomic()
    around._from_testcase = True  # type: ignore[attr-defined]  # as TestCase says it of its own
    with around:
        yield
        transaction.set_rollback(True)
