"""What each group may do, and that nothing is done by hand, by looking, or by a form of another site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import ROLES, Login, crawl
from tests.workflows.admin.targets import (
    Target,
    acknowledge,
    acknowledge_given_up,
    answer,
    approve,
    assign,
    assign_question,
    cancel,
    claim,
    claim_question,
    hold,
    reject,
    release,
    retry,
    retry_selected,
    revoke,
    run_again,
    run_now,
    try_now,
)
from tests.workflows.outages.services import open_circuit
from workflows.models import ApiKey, ManualTask

MAY: dict[Callable[[], Target], set[str]] = {
    retry: {"support", "support lead", "engineer", "superuser"},
    retry_selected: {"support", "support lead", "engineer", "superuser"},
    run_now: {"support", "support lead", "engineer", "superuser"},
    run_again: {"support", "support lead", "engineer", "superuser"},
    acknowledge: {"support", "support lead", "engineer", "superuser"},
    acknowledge_given_up: {"support", "support lead", "engineer", "superuser"},
    cancel: {"support", "support lead", "engineer", "superuser"},
    approve: {"approver", "superuser"},
    reject: {"approver", "superuser"},
    claim: {"approver", "superuser"},
    answer: {"support lead", "engineer", "operations", "superuser"},
    claim_question: {"support lead", "engineer", "operations", "superuser"},
    assign: {"support lead", "approver", "superuser"},
    assign_question: {"support lead", "engineer", "operations", "superuser"},
    release: {"support lead", "approver", "superuser"},
    revoke: {"engineer", "superuser"},
    hold: {"engineer", "superuser"},
    try_now: {"engineer", "superuser"},
}


# They have a permission, and are not in the team.
REFUSED_IN_WORDS = {
    *((answer, "approver"), (claim_question, "approver"), (assign_question, "approver")),
    *((assign, "engineer"), (assign, "operations")),
}


def tables() -> dict[str, list[Any]]:
    """Everything that is stored about workflows."""
    return {
        model._meta.label: list(model._default_manager.order_by("pk").values())
        for model in [*apps.get_app_config("workflows").get_models(), apps.get_model("admin", "LogEntry")]
    }


@pytest.mark.parametrize("role", [*ROLES, "nobody"])
@pytest.mark.parametrize("verb", list(MAY))
def test_each_group_may_do_what_it_is_for_and_nothing_else(as_: Login, verb: Callable[[], Target], role: str) -> None:
    client, (url, data) = as_(role), verb()
    before = tables()
    response = client.post(url, data)
    if role in MAY[verb]:
        assert response.status_code == 302
        assert tables() != before
    else:
        assert response.status_code == 403 or verb is retry_selected or (verb, role) in REFUSED_IN_WORDS
        assert tables() == before


@pytest.mark.parametrize("verb", list(MAY))
def test_a_post_without_its_csrf_token_is_refused(as_: Login, verb: Callable[[], Target]) -> None:
    client, (url, data) = as_("superuser", csrf=True), verb()
    before = tables()
    assert client.post(url, data).status_code == 403
    assert tables() == before


@pytest.mark.parametrize("verb", list(MAY))
def test_a_stranger_is_sent_to_the_login(db: None, verb: Callable[[], Target]) -> None:
    url, data = verb()
    before = tables()
    response = Client().post(url, data)
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/")
    assert tables() == before


def test_looking_at_every_page_changes_nothing(as_: Login) -> None:
    for verb in (retry, run_now, run_again, approve, revoke, try_now):
        verb()
    client = as_("superuser")
    before = tables()
    pages = crawl(client)
    assert {url.rsplit("/", 2)[1] for url in pages} >= {
        "change",
        "retry",
        "acknowledge",
        "run_now",
        "follow_up",
        "revoke",
        "hold",
        "try_now",
        "workflow",
        "manualtask",
    }
    for url, data in (retry_selected(), reject_again()):
        client.get(url, data)
    after = tables()
    assert len(after["workflows.Workflow"]) == len(before["workflows.Workflow"]) + 1  # of retry_selected() itself
    assert after["workflows.Event"] == before["workflows.Event"]
    assert after["workflows.ManualTask"] == before["workflows.ManualTask"]
    assert after["workflows.ApiKey"] == before["workflows.ApiKey"]
    assert after["workflows.Service"] == before["workflows.Service"]


def reject_again() -> Target:
    return f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/", {"decision": "reject", "reason": "x"}


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
    operations = {"retry_workflow", "run_workflow_now", "cancel_workflow", "follow_up_workflow", "acknowledge_workflow"}
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
