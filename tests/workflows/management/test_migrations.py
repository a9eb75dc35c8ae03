"""Our migrations run while submissions come in: none builds an index under a lock that they would wait for."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

pytestmark = pytest.mark.django_db(transaction=True)


def builds_under_a_lock(sql: list[str]) -> list[str]:
    """The statements that build an index, for a constraint too, while nobody may write to the table."""
    new = {table for each in sql for table in re.findall(r'^CREATE TABLE "(\w+)"', each)}
    index = r'^CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY).*? ON "(\w+)"'
    constraint = r'^ALTER TABLE "(\w+)" (?:.* )?(?:UNIQUE|EXCLUDE|PRIMARY KEY)\b(?! USING INDEX)'
    return [each for each in sql if {*re.findall(index, each), *re.findall(constraint, each)} - new]


def test_an_index_is_built_concurrently_and_what_cannot_be_tried_again_does_nothing_else() -> None:
    """`migrate` lets a migration that is not a transaction wait for as long as it has to."""
    loader = MigrationLoader(connection)
    for (app, name), migration in loader.graph.nodes.items():
        if app == "workflows":
            # What it sends, as `manage.py sqlmigrate` shows it.
            sql = [line for line in loader.collect_sql([(migration, False)]) if not line.startswith("--")]
            assert builds_under_a_lock(sql) == [], name
            assert migration.atomic or [each for each in sql if " CONCURRENTLY " not in each] == [], name
