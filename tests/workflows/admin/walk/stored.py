"""What is stored, as one checksum a table, and requests that leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.apps import apps
from django.db import connection, transaction

# Of the visit itself: who is signed in, since when, from where, and which pages they were shown.
OF_THE_VISIT = ("django_session", "usersessions_", "axes_", "workflows_access")


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


class Watch:
    """Says which tables have changed since it began. It looks at their rows only after somebody wrote to one at all."""

    def __init__(self) -> None:
        self.before, self.writes = stored(), _writes()

    def changed(self) -> list[str]:
        writes, self.writes = self.writes, _writes()
        return changed(self.before, stored()) if self.writes != writes else []


def _writes() -> list[tuple[str, int]]:
    """How many rows this transaction has written so far to each table, what was rolled back in it included."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, n_tup_ins + n_tup_upd + n_tup_del FROM pg_stat_xact_user_tables"
            " WHERE n_tup_ins + n_tup_upd + n_tup_del > 0 AND NOT relname ^@ ANY (%s) ORDER BY 1",
            [list(OF_THE_VISIT)],
        )
        return cursor.fetchall()


@contextmanager
def undone() -> Iterator[None]:
    """What is written meanwhile is rolled back. The operations may start their transactions in it as in a test's."""
    around = transaction.atomic()
    around._from_testcase = True  # type: ignore[attr-defined]  # as TestCase says it of its own
    with around:
        yield
        transaction.set_rollback(True)
