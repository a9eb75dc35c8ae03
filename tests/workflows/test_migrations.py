"""Our migrations run while submissions come in: none builds an index under a lock that they would wait for."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

pytestmark = pytest.mark.django_db(transaction=True)

# Up to this one the database could only be migrated at rest.
LAST_AT_REST = "0021_undelivered_message"
UNDER_LOAD = sorted(
    name for app, name in MigrationLoader(None).graph.nodes if app == "workflows" and name > LAST_AT_REST
)


def statements(name: str) -> list[str]:
    """What the migration sends, as `manage.py sqlmigrate` shows it."""
    loader = MigrationLoader(connection)
    plan = [(loader.graph.nodes["workflows", name], False)]
    return [line for line in loader.collect_sql(plan) if not line.startswith("--")]


def builds_under_a_lock(sql: list[str]) -> list[str]:
    """The statements that build an index, for a constraint too, while nobody may write to the table."""
    new = {table for each in sql for table in re.findall(r'^CREATE TABLE "(\w+)"', each)}
    index = r'^CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY).*? ON "(\w+)"'
    constraint = r'^ALTER TABLE "(\w+)" (?:.* )?(?:UNIQUE|EXCLUDE|PRIMARY KEY)\b(?! USING INDEX)'
    return [each for each in sql if {*re.findall(index, each), *re.findall(constraint, each)} - new]


@pytest.mark.parametrize("name", UNDER_LOAD)
def test_an_index_is_built_concurrently(name: str) -> None:
    assert builds_under_a_lock(statements(name)) == []


@pytest.mark.parametrize("name", UNDER_LOAD)
def test_what_cannot_be_tried_again_stands_in_nobodys_way(name: str) -> None:
    """`migrate` lets it wait for as long as it has to."""
    migration = MigrationLoader(None).graph.nodes["workflows", name]
    if not migration.atomic:
        assert [each for each in statements(name) if " CONCURRENTLY " not in each] == []


@pytest.mark.parametrize(
    ("name", "is_built"),
    [("0001_initial", False), ("0018_signals_of_workflow", True), ("0021_undelivered_message", True)],
)
def test_it_is_seen_where_it_is_not(name: str, is_built: bool) -> None:
    """An index, a unique constraint, and those of new tables."""
    assert bool(builds_under_a_lock(statements(name))) is is_built
