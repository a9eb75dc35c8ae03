"""Our migrations run while submissions come in: none builds an index under a lock that they would wait for."""

from __future__ import annotations

import re
from importlib import import_module
from types import SimpleNamespace

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from workflows.models import BusinessKeyHash, SearchKeyHash
from workflows.postgres.statements import execute

pytestmark = pytest.mark.django_db(transaction=True)


def builds_under_a_lock(sql: list[str]) -> list[str]:
    """The statements that build an index, for a constraint too, while nobody may write to the table."""
    new = {table for each in sql for table in re.findall(r'^CREATE TABLE "(\w+)"', each)}
    renamed = [names for each in sql for names in re.findall(r'^ALTER TABLE "(\w+)" RENAME TO "(\w+)"', each)]
    new |= {to for table, to in renamed if table in new}
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


def test_each_hash_of_a_business_key_moves_with_its_part_and_search_keys_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    migration = import_module("workflows.migrations.0018_business_keys_moved")
    monkeypatch.setattr(migration, "SLICE", 2)
    execute("ALTER TABLE workflows_searchkey ADD COLUMN former_role varchar(7)")
    execute("ALTER TABLE workflows_businesskey RENAME TO workflows_businesskey_unmoved")
    try:
        execute(
            """INSERT INTO workflows_searchkey (hash, workflow_id, key_id, former_role)
               SELECT decode(md5(n::text), 'hex'), n, 7, (ARRAY['holder', 'waiting', 'former', NULL])[n %% 4 + 1]
                 FROM generate_series(1, %s) n""",
            [9],
        )
        for _ in range(2):  # it was stopped, and starts again
            migration.move(None, SimpleNamespace(connection=connection))
        migration.move_back(None, connection.schema_editor())
        assert SearchKeyHash.objects.count() == 9
        migration.move(None, SimpleNamespace(connection=connection))
    finally:
        execute("ALTER TABLE workflows_searchkey DROP COLUMN former_role")
        execute("ALTER TABLE workflows_businesskey_unmoved RENAME TO workflows_businesskey")
    assert set(SearchKeyHash.objects.values_list("workflow_id", flat=True)) == {3, 7}
    moved = BusinessKeyHash.objects.values_list("workflow_id", "key_id", "role").order_by("workflow_id")
    parts = ["waiting", "former", "holder", "waiting", "former", "holder", "waiting"]
    assert list(moved) == [(n, 7, part) for n, part in zip([1, 2, 4, 5, 6, 8, 9], parts, strict=True)]


def test_no_worker_compares_business_keys_before_each_hash_has_moved() -> None:
    """It would not find the holder, and charge a patient a second time: so it finds no table, and decides nothing."""
    moving = MigrationLoader(connection).project_state(("workflows", "0018_business_keys_moved"))
    table = moving.models["workflows", "businesskeyhash"].options["db_table"]
    assert table != BusinessKeyHash._meta.db_table
