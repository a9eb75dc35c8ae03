"""The groups have their permissions, as the docs say. Who gets what at which URL: `walk/`."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group

from tests.groups import make_groups
from tests.servers import ROOT


@pytest.mark.django_db(transaction=True)
def test_a_fresh_database_has_the_groups_with_their_permissions() -> None:
    from django.core.management import call_command
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE auth_permission, auth_group CASCADE")
    call_command("migrate", "workflows", "0001", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE auth_permission, auth_group CASCADE")  # as before the first migrate has ended
    call_command("migrate", "workflows", "0002", verbosity=0)
    call_command("migrate", verbosity=0)
    held = {
        group.name: set(group.permissions.values_list("codename", flat=True))
        for group in Group.objects.order_by("name")
    }
    assert list(held) == ["approver", "auditor", "engineer", "operations", "support", "support lead"]
    operations = {
        *("retry_workflow", "run_workflow_now", "cancel_workflow", "follow_up_workflow", "acknowledge_workflow"),
    }
    seen = {"view_workflow", "view_manualtask", "view_workerprocess", "view_service"}
    assert held["support"] == {*seen, *operations}
    assert held["approver"] == {"view_workflow", "view_manualtask", "decide_manualtask"}
    assert {*operations, "revoke_apikey", "view_apikey"} <= held["engineer"]
    assert {"view_service", "hold_service", "try_service"} <= held["engineer"]
    assert held["support lead"] == {
        *held["support"],
        *("resolve_manualtask", "assign_manualtask", "cancel_paid_workflow"),
    }
    assert "cancel_paid_workflow" in held["engineer"]
    assert held["operations"] == {"view_workflow", "view_manualtask", "resolve_manualtask"}
    assert "resolve_manualtask" in held["engineer"]
    assert "decide_manualtask" not in held["engineer"] | held["support lead"]
    assert {"view_undeliveredmessage", "view_service"} <= held["engineer"] & held["auditor"]
    assert all(codename.startswith("view_") for codename in held["auditor"])


def test_the_table_of_the_docs_is_what_the_groups_have(db: None) -> None:
    make_groups()
    lines = [line for line in (ROOT / "docs" / "permissions.md").read_text().splitlines() if line.startswith("|")]
    groups = [cell.strip() for cell in lines[0].split("|")[3:-1]]
    said: dict[str, set[str]] = {group: set() for group in groups}
    for line in lines[2:]:
        permissions, _, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        if len(cells) != len(groups):
            break  # the next table
        for group, cell in zip(groups, cells, strict=True):
            said[group] |= set(re.findall(r"`(\w+)`", permissions if cell == "yes" else cell))
    for group, permissions in said.items():
        assert permissions == {each.codename for each in Group.objects.get(name=group).permissions.all()}, group
