"""No page shows what a patient sent, to nobody; and what anybody wrote stays text."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client

from tests.workflows import rows
from tests.workflows.admin.conftest import ROLES, Login, crawl
from workflows import operations
from workflows.models import ApiKey, ManualTask, Signal, Workflow

# Markers as a patient's data could hold them; the facts of a task are for who decides it.
CANARY = "canary-in-the-data"
FACT = "canary-in-the-facts"


def everything() -> None:
    sent = {
        "payload": {"patient": {"email": CANARY, CANARY: 1, "list": [CANARY, {"a": CANARY}]}, CANARY.upper(): {"a": 1}},
        "context": {"account": CANARY, "nested": {"deep": [CANARY]}},
    }
    for number, make in enumerate(
        [rows.workflow, rows.running, rows.retrying, rows.waiting, rows.complete, rows.failed]
    ):
        row = make(linking_id=f"{CANARY}-link", business_key=f"{CANARY}-{number}", **sent)
        for kind in ("failed", "waiting", "retry_scheduled", "completed", "vanished"):
            rows.event(row, kind, detail={"payload": CANARY, "anything": {"else": CANARY}})
        row.signals.create(source="web", dedupe_key=f"{number}", name="x", payload={"x": CANARY})
        row.signals.create(source="web", dedupe_key=f"used {number}", name="x", payload={"x": CANARY}, closed_at=Now())
        row.waits.update(result={"x": CANARY}, signal=row.signals.last())
    row.children.create(
        idempotency_key=uuid.uuid4(), workflow_type="parcel", parent_wait="parcels", child_key="a", **sent
    )
    linked = {"linking_id": f"{CANARY}-link", "payload": {"x": CANARY}}
    Signal.objects.create(source="web", dedupe_key="linked", name="x", **linked)
    boss = User.objects.create_superuser("who-answers")
    in_doubt = rows.open_task(rows.waiting(task=False, **sent), task_type="effect_in_doubt")
    paid = {"charge_id": CANARY, "payment_status": "paid", "receipt": uuid.uuid4()}
    operations.approve(in_doubt.pk, user=boss, answer=paid)
    undo = rows.open_task(rows.compensating(**sent), task_type="undo_in_doubt", expires_at=in_doubt.expires_at)
    operations.approve(undo.pk, user=boss, reason="By phone.", answer={"kept": False, "reference": CANARY})
    ManualTask.objects.update(facts=[["Weight", FACT]])
    ApiKey.objects.create(name="web", prefix="onr_ab", digest=b"1")
    rows.undelivered_message(key=CANARY.encode(), value=CANARY.encode(), headers=[["id", CANARY]])
    rows.worker(workflow=Workflow.objects.first(), step="charge")


@pytest.mark.parametrize("role", ROLES)
def test_no_page_of_the_console_shows_a_payload_value(as_: Login, role: str) -> None:
    everything()
    pages = crawl(as_(role))
    assert len(pages) > 25
    for url, html in pages.items():
        assert CANARY not in html.lower(), url
        if FACT in html:
            assert "/manualtask/" in url
            assert role in ("approver", "superuser")


def test_the_crawl_sees_what_it_looks_for(as_: Login) -> None:
    """The canaries' own canary: text that is shown is found, on the workflow's page and on the task's."""
    everything()
    Workflow.objects.update(last_error_message=FACT)
    pages = crawl(as_("approver"))
    assert any(FACT in html and "/workflow/" in url for url, html in pages.items())
    assert any(FACT in html and "/manualtask/" in url for url, html in pages.items())


SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_what_anybody_wrote_stays_text(as_: Login) -> None:
    error = {"error_class": SCRIPT, "error_code": SCRIPT, "error_message": SCRIPT}
    errors = {f"last_{name}": text for name, text in error.items()}
    errors["last_error_code"] = SCRIPT
    made = [
        rows.failed(
            current_step=SCRIPT, submitted_by=SCRIPT, workflow_type=SCRIPT, tenant=SCRIPT, queue=SCRIPT, **errors
        ),
        rows.retrying(current_step=SCRIPT, **errors),
        rows.waiting(task=False, waiting_for=SCRIPT, linking_id=SCRIPT, payload={SCRIPT: SCRIPT}),
    ]
    rows.open_task(made[2], question=SCRIPT, task_type=SCRIPT, facts=[[SCRIPT, [SCRIPT]]], team=SCRIPT)
    signal = made[2].signals.create(source=SCRIPT, dedupe_key="1", name=SCRIPT)
    made[2].waits.update(name=SCRIPT, outcome=SCRIPT[:30], signal=signal)
    made[2].children.create(idempotency_key=uuid.uuid4(), payload={}, parent_wait=SCRIPT, child_key=SCRIPT)
    for row in made:
        step = {"step": SCRIPT, "outcome": SCRIPT, "ms": 1, **error}
        rows.attempt(row, 7, worker=SCRIPT, release=SCRIPT, traceback=SCRIPT, outcome="failed", steps=[step])
        for kind in ("failed", "retry_scheduled", "waiting", "rejected"):
            detail = {**error, "reason": SCRIPT, "waiting_for": SCRIPT, "until": SCRIPT, "failures": SCRIPT}
            rows.event(row, kind, step=SCRIPT, actor=SCRIPT, detail=detail)
    ApiKey.objects.create(name=SCRIPT, prefix="<b>", digest=b"1")
    rows.worker(name=SCRIPT, host=SCRIPT, release=SCRIPT, queue=SCRIPT, step=SCRIPT)
    rows.worker(name=SCRIPT, stopped_at=Now(), ended_how="<b>")

    boss = as_("superuser")
    rejected = {"decision": "reject", "reason": SCRIPT}
    pages = crawl(boss)
    decide = f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/"
    pages["decided"] = boss.post(decide, rejected, follow=True).content.decode()
    pages["search"] = boss.get("/admin/workflows/workflow/", {"q": SCRIPT, "state": SCRIPT}).content.decode()
    assert "&lt;script&gt;" in pages["decided"]
    for url, html in pages.items():
        assert "<script>alert" not in html, url
        assert "<img src=x" not in html, url
        assert "<b>" not in html, url


def test_every_page_forbids_scripts_and_styles_that_are_not_its_own_files(as_: Login) -> None:
    everything()
    boss = as_("superuser")
    for url, html in crawl(boss).items():
        assert "style=" not in html, url
        assert "<style" not in html, url
        assert "onclick=" not in html, url
        assert "<script>" not in html, url
    assert boss.get("/admin/")["Content-Security-Policy"].startswith("default-src 'self';")
    assert Client().get("/admin/login/")["Content-Security-Policy"].startswith("default-src 'self';")
