"""The console's groups, as the migration makes them: tests with transactions of their own empty all tables."""

from __future__ import annotations

from importlib import import_module

from django.db import connection

_GIVEN = [
    import_module(f"workflows.migrations.{name}").GROUPS
    for name in (
        "0002_groups",
        "0005_causes",
        "0011_bulk_operations",
        "0014_pace",
        "0017_settled_messages",
        "0018_access",
        "0022_corrections",
        "0028_holds",
        "0029_erasures",
        "0030_outbox",
    )
]
GROUPS: dict[str, list[str]] = {
    name: [codename for given in _GIVEN for codename in given.get(name, [])] for name in _GIVEN[0]
}

_MAKE = """
    WITH given (name, codename) AS (SELECT * FROM unnest(%s::text[], %s::text[])),
         made AS (INSERT INTO auth_group (name) SELECT DISTINCT name FROM given
                  ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id, name)
    INSERT INTO auth_group_permissions (group_id, permission_id)
    SELECT made.id, permission.id
      FROM given JOIN made USING (name) JOIN auth_permission permission USING (codename)
    ON CONFLICT (group_id, permission_id) DO NOTHING"""


def make_groups() -> None:
    """Make those that are missing, with the permissions that the migration gives them, in one statement."""
    pairs = [(name, codename) for name, codenames in GROUPS.items() for codename in codenames]
    with connection.cursor() as cursor:
        cursor.execute(_MAKE, [list(column) for column in zip(*pairs, strict=True)])
