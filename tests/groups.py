"""The console's groups, as migrations make them: tests with transactions of their own empty all tables."""

from __future__ import annotations

from importlib import import_module

from django.db import connection

GROUPS: dict[str, list[str]] = {}
for _given in ("0003_groups", "0028_lists"):  # each migration that gives groups something
    for _name, _codenames in import_module(f"workflows.migrations.{_given}").GROUPS.items():
        GROUPS[_name] = [*GROUPS.get(_name, []), *_codenames]

_MAKE = """
    WITH given (name, codename) AS (SELECT * FROM unnest(%s::text[], %s::text[])),
         made AS (INSERT INTO auth_group (name) SELECT DISTINCT name FROM given
                  ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id, name)
    INSERT INTO auth_group_permissions (group_id, permission_id)
    SELECT made.id, permission.id
      FROM given JOIN made USING (name) JOIN auth_permission permission USING (codename)
    ON CONFLICT (group_id, permission_id) DO NOTHING"""


def make_groups() -> None:
    """Make those that are missing, with the permissions that migrations give them, in one statement."""
    pairs = [(name, codename) for name, codenames in GROUPS.items() for codename in codenames]
    with connection.cursor() as cursor:
        cursor.execute(_MAKE, [list(column) for column in zip(*pairs, strict=True)])
