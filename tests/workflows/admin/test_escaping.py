"""What anybody wrote stays text. That no page shows what a patient sent: `walk/test_console.py`."""

from __future__ import annotations

import uuid

from django.db.models.functions import Now

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, crawl
from workflows.models import ApiKey, ManualTask

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
    pages = crawl(boss, filtered=False)
    decide = f"/admin/workflows/manualtask/{ManualTask.objects.get().pk}/decide/"
    pages["decided"] = boss.post(decide, rejected, follow=True).content.decode()
    pages["search"] = boss.get("/admin/workflows/workflow/", {"q": SCRIPT, "state": SCRIPT}).content.decode()
    assert "&lt;script&gt;" in pages["decided"]
    for url, html in pages.items():
        assert "<script>alert" not in html, url
        assert "<img src=x" not in html, url
        assert "<b>" not in html, url
