"""Nothing is done by hand, and the groups have their permissions. Who gets what at which URL: `walk/`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group

from tests.groups import make_groups
from tests.servers import ROOT
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.outages.services import open_circuit
from workflows.models import ApiKey


def tables() -> dict[str, list[Any]]:
    """Everything that is stored about workflows."""
    return {
        model._meta.label: list(model._default_manager.order_by("pk").values())
        for model in [*apps.get_app_config("workflows").get_models(), apps.get_model("admin", "LogEntry")]
    }


# --- Nothing by hand ----------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["workflow", "manualtask", "apikey", "service"])
def test_nobody_adds_edits_or_deletes_by_hand(as_: Login, model: str) -> None:
    rows.waiting()
    ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1")
    open_circuit()
    pk = apps.get_model("workflows", model)._default_manager.get().pk
    client = as_("superuser")
    before = tables()
    root = f"/admin/workflows/{model}"
    form = {"status": "COMPLETE", "state": "approved", "name": "mine", "post": "yes", "_save": "Save"}
    assert client.post(f"{root}/add/", form).status_code == 403
    assert client.post(f"{root}/{pk}/change/", form).status_code == 403
    assert client.post(f"{root}/{pk}/delete/", form).status_code == 403
    delete = {"action": "delete_selected", "_selected_action": str(pk), "post": "yes"}
    client.post(f"{root}/", delete)
    client.post(f"{root}/", {**form, "form-0-id": str(pk), "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1"})
    for url in (f"{root}/add/", f"{root}/{pk}/delete/"):
        assert client.get(url).status_code == 403
    assert tables() == before


@pytest.mark.parametrize("model", ["attempt", "event", "signal", "wait", "circuitevent"])
def test_what_belongs_to_a_workflow_has_no_pages_of_its_own(as_: Login, model: str) -> None:
    assert as_("superuser").get(f"/admin/workflows/{model}/").status_code == 404


# --- Groups -------------------------------------------------------------------------------------


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
