"""The button to say whether a call in doubt happened, on the page of its workflow."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels, read
from workflows.engine.undo_doubts import UNDO_TASK_TYPE
from workflows.models import Attempt, Effect, Workflow

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db(transaction=True)
LABEL = "Say whether it happened"


def test_a_lead_who_has_seen_the_charge_says_so(as_: Login) -> None:
    row, lead = rows.looked_up(), as_("support lead")
    page = f"/admin/workflows/workflow/{row.pk}"
    told = read(lead, f"{page}/change/")
    assert "Whether “Charge the card” happened is not known, and is looked up again and again." in told
    assert f"A lead or an engineer who has seen it in its service need not wait: “{LABEL}”." in told
    asks = read(lead, f"{page}/say_whether/")
    assert "A worker looks it up once more, at once: “Charge the card”." in asks
    assert "takes the place" not in asks
    form = {"seen": [Effect.objects.get().call_number], "reason": "Seen at the bank."}
    html = lead.post(f"{page}/say_whether/", form, follow=True).content.decode()
    assert "the question opens here in a moment" in html
    assert re.search(r"Wants to say whether it happened.+Charge the card.+Seen at the bank\.", unescape(html), re.S)
    row.refresh_from_db()
    assert (row.invisible_until <= timezone.now(), Effect.objects.get().state) == (True, "unknown")
    assert f"{page}/say_whether/" not in as_("support").get(f"{page}/change/").content.decode()


def test_it_is_not_offered_for_a_call_that_a_worker_is_making_nor_when_the_workflow_has_failed(as_: Login) -> None:
    row, lead = rows.looked_up(), as_("support lead")
    made = Attempt.objects.create(workflow=row, number=1, worker="host:1")
    assert LABEL not in read(lead, f"/admin/workflows/workflow/{row.pk}/change/")
    made.delete()
    Workflow.objects.update(status="FAILED", completed_at=timezone.now())
    assert LABEL not in read(lead, f"/admin/workflows/workflow/{row.pk}/change/")


def test_a_failed_reversal_says_how_what_happened_is_reversed(as_: Login) -> None:
    row, lead = rows.looked_up(compensating=True), as_("support lead")
    asked = {"task_type": UNDO_TASK_TYPE, "about": "execute_checkout", "team": "operations"}
    task = rows.open_task(Workflow.objects.get(pk=row.pk), **asked)
    assert f"“{LABEL}”, on the page of the workflow" in read(lead, f"/admin/workflows/manualtask/{task.pk}/change/")
    assert "takes the place of the question" in read(lead, f"/admin/workflows/workflow/{row.pk}/say_whether/")
    Effect.objects.update(state="done", result={"charge_id": "ch_9"})
    assert LABEL not in read(lead, f"/admin/workflows/workflow/{row.pk}/change/")
    assert LABEL not in read(lead, f"/admin/workflows/manualtask/{task.pk}/change/")
