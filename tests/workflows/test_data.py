"""docs/data.md names every column of every table."""

from __future__ import annotations

from collections import defaultdict

import pytest
from django.db import connection

from tests.data_table import documented


@pytest.mark.django_db
def test_the_page_about_data_names_each_column_of_each_table() -> None:
    there = defaultdict(set)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        )
        for table, column in cursor.fetchall():
            there[table].add(column)
    said = {table: columns.in_clear | columns.told | columns.others for table, columns in documented().items()}
    assert {
        table: there[table] ^ said.get(table, set()) for table in {*there, *said} if there[table] != said.get(table)
    } == {}
