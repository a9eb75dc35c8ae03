"""What an API key may do beside sending: read the history of its tenant's workflows, and cancel them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.test_consequences import call, onboarding
from tests.workflows.api.answers import assert_problem
from tests.workflows.operations.people import held
from workflows.ingress import api_keys, bounds
from workflows.models import Event, Workflow
from workflows.signals import store

pytestmark = pytest.mark.django_db(transaction=True)

REASON = {"reason": "It was withdrawn."}


def key_that_may(*may: str, name: str = "shop", tenant: str = "") -> str:
    return api_keys.create(name, tenant=tenant, may=may or bounds.BEYOND)


def get(client: Client, row: Workflow, key: str, query: str = "") -> Any:
    return client.get(f"/v1/workflows/{row.key}/history{query}", headers={"Authorization": f"Bearer {key}"})


def cancel(client: Client, row: Workflow, key: str, body: Any = REASON) -> Any:
    return client.post(
        f"/v1/workflows/{row.key}/cancel",
        json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {key}"},
    )


def test_the_history_is_told_page_by_page_without_names_reasons_and_values(client: Client) -> None:
    row = rows.workflow(submitted_by="shop")
    kinds = [("failed", "", {"error_code": "refused", "error_message": "canary"})]
    kinds += [("retried", "ada", {"reason": "canary"}), ("cancelled", "api:shop", {"reason": "canary"})]
    kinds += [("run_now", "api:other", {})]
    for kind, actor, detail in kinds:
        rows.event(row, kind, actor=actor, detail=detail, step="charge")
    rows.event(rows.failed(), "failed")
    key = key_that_may("read-history")
    first = get(client, row, key, "?limit=3").json()
    rest = client.get(first["next"], headers={"Authorization": f"Bearer {key}"}).json()
    told = first["events"] + rest["events"]
    assert [(each["kind"], each["by"], each["code"]) for each in told] == [
        ("failed", None, "refused"),
        ("retried", "staff", None),
        ("cancelled", "you", None),
        ("run_now", "client", None),
    ]
    assert (len(first["events"]), rest["next"]) == (3, None)
    assert not [word for word in ("canary", "ada") if word in json.dumps(told)]


def test_a_client_reaches_its_tenants_workflows_and_no_others(client: Client) -> None:
    norths, souths = rows.workflow(tenant="north"), rows.workflow(tenant="south", submitted_by="shop")
    own, strangers = rows.workflow(submitted_by="lone"), rows.workflow(submitted_by="else")
    of_north, lone = key_that_may(tenant="north"), key_that_may(name="lone")
    assert [get(client, row, of_north).status_code for row in (norths, souths, own)] == [200, 404, 404]
    assert [get(client, row, lone).status_code for row in (own, strangers, norths)] == [200, 404, 404]
    for row in (souths, strangers):
        assert_problem(cancel(client, row, of_north), 404, "not_found")
    assert not Workflow.objects.exclude(status="PENDING").exists()


def test_a_right_is_the_keys_and_not_the_clients(client: Client) -> None:
    row = rows.workflow(submitted_by="shop")
    key_that_may()
    plain, reads = api_keys.create("shop"), key_that_may("read-history")
    assert_problem(get(client, row, plain), 403, "not_permitted")
    assert_problem(cancel(client, row, reads), 403, "not_permitted")
    assert_problem(get(client, row, "onramp_junk"), 401, "api_key_invalid")
    call_command("createapikey", "shop", "--may", "cancel", "--may", "read-history")
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("createapikey", "shop", "--may", "retry")


def test_it_is_cancelled_once_in_the_clients_name(client: Client) -> None:
    row = onboarding(submitted_by="shop")
    email = row.payload["patient"]["email"]
    key = key_that_may("cancel")
    answers = [cancel(client, row, key, {"reason": f"{email} has withdrawn."}) for _ in range(2)]
    assert [(each.status_code, each.json()["state"], each.json()["replayed"]) for each in answers] == [
        (202, "cancelled", False),
        (202, "cancelled", True),
    ]
    event = Event.objects.get(kind="cancelled")
    assert (event.actor, email in event.detail["reason"]) == ("api:shop", False)


def test_one_that_runs_is_cancelled_by_its_worker(client: Client) -> None:
    row = rows.running(submitted_by="shop")
    key = key_that_may("cancel")
    with held(row):
        assert [cancel(client, row, key).json()["replayed"] for _ in range(2)] == [False, True]
    assert Event.objects.values_list("kind", "actor").get() == ("cancel_requested", "api:shop")


@pytest.mark.parametrize("state", ["done", "unknown"])
def test_what_has_charged_or_may_have_is_left_to_people(client: Client, state: str) -> None:
    row = onboarding(submitted_by="shop")
    call(row, "execute_checkout", state, charge_id="ch_1")
    assert_problem(cancel(client, row, key_that_may()), 409, "charged")
    assert not Event.objects.exists()


def test_what_has_finished_is_not_cancelled(client: Client) -> None:
    done = rows.complete(submitted_by="shop")
    asked = {"name": store.CANCEL_SIGNAL, "workflow_id": done.pk, "payload": {"by": "ada", "reason": ""}}
    store.store(source="console", dedupe_key="too late", **asked)
    for row in (done, rows.failed(submitted_by="shop"), rows.workflow(submitted_by="shop", compensating=True)):
        assert_problem(cancel(client, row, key_that_may()), 409, "not_under_way")


def test_what_makes_no_sense_is_refused(client: Client) -> None:
    row, key = rows.workflow(submitted_by="shop"), key_that_may()
    for query in ("?limit=0", "?limit=501", "?limit=x", "?after=-1", "?after=9999999999999999999"):
        assert_problem(get(client, row, key, query), 422, "page_invalid")
    for reason in (None, " ", 1, "x" * 501):
        assert_problem(cancel(client, row, key, {"reason": reason}), 422, "reason_invalid")
    assert_problem(cancel(client, row, key, {**REASON, "force": True}), 422, "field_unknown")
    headers = {"Authorization": f"Bearer {key}"}
    for path, method in (("history", client.post), ("cancel", client.get)):
        assert_problem(method(f"/v1/workflows/{row.key}/{path}", headers=headers), 405, "method_not_allowed")
    for junk in ("1", "%00"):
        assert_problem(client.get(f"/v1/workflows/{junk}/history", headers=headers), 404, "not_found")
