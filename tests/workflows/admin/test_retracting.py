"""An answer is retracted on a page that says what will happen; where it stands, its page says why."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.utils import timezone

from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import PAID, decide, page, task, url, words
from workflows.models import ManualTask, Workflow


def retract(client: Client, row: ManualTask, **data: str) -> str:
    return words(client.post(url(row, "take_back"), data, follow=True).content.decode())


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_retracted_on_a_page_that_says_what_will_happen(as_: Login) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    assert "A wrong answer can be retracted while nothing has built on it." in page(client, row)
    decide(client, row, decision="approve", **PAID)
    assert f'href="{url(row, "take_back")}">Retract the answer</a>' in page(client, row)
    html = words(client.get(url(row, "take_back")).content.decode())
    for said in [
        "Retract the answer?",
        "Whether “Charge” happened is then unknown again.",
        "The workflow asks again at once: “May this parcel go out?” is then another task.",
        "The answer stays in the history, with who took it back, and why.",
    ]:
        assert said in html
    assert "This field is required." in retract(client, row)
    html = retract(client, row, reason="Another patient's.")
    assert "It is retracted; the workflow asks again at once." in html
    assert re.search(r"Answered by some-approver at .*Retracted by some-approver at .*Another patient's\.", html)
    assert "Retract the answer" not in html
    history = words(client.get(f"/admin/workflows/workflow/{row.workflow_id}/change/").content.decode())
    said = "Charge: “It happened”, as some-approver had answered Another patient's. charge"
    assert f"Answer retracted by some-approver {said}" in history


def test_an_answer_that_stands_offers_no_button_and_its_page_says_why(as_: Login) -> None:
    client, row = as_("approver"), task(task_type="effect_in_doubt")
    decide(client, row, decision="approve", **PAID)
    Workflow.objects.update(status="COMPLETE", completed_at=timezone.now())
    assert "Retract the answer" not in page(client, row)
    html = words(client.get(url(row, "take_back")).content.decode())
    assert "Nothing: it cannot be retracted. Its workflow is complete" in html
