"""The groups have their permissions, as the docs say. Who gets what at which URL: `walk/`."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group

from tests.groups import GROUPS
from tests.servers import ROOT


def test_the_migrations_give_the_permissions_that_the_docs_say() -> None:
    assert {name: set(codenames) for name, codenames in GROUPS.items()} == granted_by_the_docs()


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_fresh_database_has_the_groups_with_the_permissions_that_the_docs_say() -> None:
    from django.core.management import call_command
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE auth_permission, auth_group CASCADE")
    call_command("migrate", "workflows", "0001", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE auth_permission, auth_group CASCADE")  # as before the first migrate has ended
    call_command("migrate", "workflows", "0002", verbosity=0)
    call_command("migrate", verbosity=0)
    held = {group.name: set(group.permissions.values_list("codename", flat=True)) for group in Group.objects.all()}
    assert held == granted_by_the_docs()


def granted_by_the_docs() -> dict[str, set[str]]:
    """The table of docs/permissions.md."""
    lines = [line for line in (ROOT / "docs" / "permissions.md").read_text().splitlines() if line.startswith("|")]
    groups = [cell.strip() for cell in lines[0].split("|")[3:-1]]
    said: dict[str, set[str]] = {group: set() for group in groups}
    for line in lines[2:]:
        permissions, _, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        if len(cells) != len(groups):
            break  # the next table
        for group, cell in zip(groups, cells, strict=True):
            said[group] |= set(re.findall(r"`(\w+)`", permissions if cell == "yes" else cell))
    return said
