"""Reveal, in the console: asked for with a purpose, shown in the answer alone, and nowhere kept."""

from __future__ import annotations

import logging

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import task
from workflows.models import Access, Workflow

PHONE = "canary-7c1d"
FORM = {"fields_asked": ["patient.phone"], "reason": "To call her back."}


@pytest.fixture
def row(db: None) -> Workflow:
    patient = {"phone": PHONE, "email": {"a": PHONE}, "last_name": f"<script>{'x' * 500}"}
    return rows.workflow(workflow_type="onboarding", payload={"patient": patient})


def url(row: Workflow, page: str = "reveal") -> str:
    return f"/admin/workflows/workflow/{row.pk}/{page}/"


def kinds() -> list[str]:
    return [each.kind for each in Access.objects.order_by("pk")]


@pytest.mark.django_db(transaction=True)
def test_the_answer_has_the_value_and_nothing_else_does(
    as_: Login, row: Workflow, caplog: pytest.LogCaptureFixture
) -> None:
    lead = as_("support lead")
    assert "Reveal</a>" in lead.get(url(row, "change")).content.decode()
    with caplog.at_level(logging.DEBUG):
        answer = lead.post(url(row), FORM)
    html = answer.content.decode()
    assert f"<dt>Phone</dt><dd>{PHONE}</dd>" in html
    assert "no-store" in answer.headers["Cache-Control"]
    logged = [record.getMessage() for record in caplog.records if record.name != "django.db.backends"]
    kept = [*logged, *(str(each.get_decoded()) for each in Session.objects.all()), str(dict(answer.headers))]
    assert PHONE not in "".join([*kept, str(list(Access.objects.values())), *pages(lead, row)])
    assert Access.objects.get(kind="revealed").detail == {"fields": ["patient.phone"], "purpose": "To call her back."}


def pages(client: Client, row: Workflow) -> list[str]:
    return [client.get(url(row, page)).content.decode() for page in ("change", "reveal", "history")]


@pytest.mark.django_db(transaction=True)
def test_what_the_sender_put_there_is_cut_escaped_or_masked(as_: Login, row: Workflow) -> None:
    fields = ["patient.email", "patient.last_name", "address.line1"]
    html = as_("support lead").post(url(row), {**FORM, "fields_asked": fields}).content.decode()
    assert "<dt>E-mail</dt><dd>••••</dd>" in html
    assert f"<dd>&lt;script&gt;{'x' * 92}…</dd>" in html
    assert "<dt>Street and number</dt><dd>not given</dd>" in html


def test_a_type_that_reveals_nothing_does_not_offer_it(as_: Login) -> None:
    parcel = rows.workflow(payload={"patient": {"phone": PHONE}})
    lead = as_("superuser")
    assert "Reveal</a>" not in lead.get(url(parcel, "change")).content.decode()
    assert PHONE not in lead.post(url(parcel), FORM).content.decode()


def test_every_page_about_a_workflow_is_on_record(as_: Login, row: Workflow) -> None:
    client, about = as_("superuser"), task()
    client.get(f"/admin/workflows/manualtask/{about.pk}/change/")
    client.get(f"/admin/workflows/manualtask/{about.pk}/assign/")
    client.get(url(row, "change"))
    client.get(url(row, "change"), headers={"X-Background": "1"})
    client.get(url(row, "cancel"))
    client.get(url(row, "nothing"))
    seen = Access.objects.order_by("pk").values_list("actor", "kind", "workflow_id")
    by = ("some-superuser", "viewed")
    assert list(seen) == [(*by, about.workflow_id)] * 2 + [(*by, row.pk)] * 2
