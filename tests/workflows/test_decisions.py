"""People and the engine together: what is clicked in the console, a worker acts upon, and the page tells."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.engine import ENGINE, define, make_due, submit, work
from workflows.definition import Step
from workflows.errors import UnknownOutcome
from workflows.models import Event, ManualTask, Wait, Workflow
from workflows.waits import require_approval

pytestmark = ENGINE


@pytest.fixture
def anna() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("anna"))
    return client


def review(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it go out?", timeout=timedelta(hours=1))


def waiting() -> Workflow:
    define([review])
    workflow = work(submit())
    assert workflow.waiting_for == "May it go out?"
    return workflow


def decide(client: Client, decision: str) -> None:
    task = ManualTask.objects.get(state="open")
    client.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": decision, "reason": "Too heavy."})


def page(client: Client, workflow: Workflow) -> str:
    return client.get(f"/admin/workflows/workflow/{workflow.pk}/change/").content.decode()


def test_a_rejected_workflow_that_is_retried_asks_again_and_takes_the_new_answer(anna: Client) -> None:
    workflow = waiting()
    decide(anna, "reject")
    assert work(workflow).status == "FAILED"
    assert "Rejected by anna: Too heavy." in page(anna, workflow)

    anna.post(f"/admin/workflows/workflow/{workflow.pk}/retry/", {"why": "other", "reason": "It was weighed again."})
    assert work(workflow).status == "PENDING"
    assert list(Wait.objects.order_by("id").values_list("superseded", flat=True)) == [True, False]
    decide(anna, "approve")
    assert work(workflow).status == "COMPLETE"
    told = Event.objects.filter(workflow=workflow).order_by("id").values_list("kind", flat=True)
    assert list(told) == ["waiting", "rejected", "failed", "retried", "waiting", "approved", "completed"]


def test_who_knows_that_a_call_happened_says_so_on_the_page_with_its_result(anna: Client) -> None:
    """An effect in doubt: its answer never came, nothing can look it up, and its key is not honoured."""
    calls = []

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        calls.append(1)
        raise UnknownOutcome("no answer")

    define([Step(call, once=True, settle=0)])
    workflow = work(submit())
    make_due(workflow)
    work(workflow)
    task = ManualTask.objects.get()
    url = f"/admin/workflows/manualtask/{task.pk}/"
    shown = anna.get(f"{url}change/").content.decode()
    assert "Unclear call: did “Call” happen?" in shown
    assert "Result, if it happened" in shown
    refused = anna.post(f"{url}decide/", {"decision": "approve", "answer-result": "[1]"})
    assert "Give a JSON object." in refused.content.decode()
    anna.post(f"{url}decide/", {"decision": "approve", "answer-result": '{"number": 9}'})
    workflow = work(workflow)
    assert (workflow.status, workflow.context["number"], calls) == ("COMPLETE", 9, [1])


def test_the_page_tells_what_was_done_in_the_outside_world(anna: Client) -> None:
    def book(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"number": 7_193_471}

    def pay(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        raise UnknownOutcome("no answer", code="no_answer")

    define([Step(book, once=True), Step(pay, once=True)])
    workflow = work(submit())
    shown = page(anna, workflow)
    assert "Done in the outside world" in shown
    assert f"{workflow.key}:book" in shown
    assert "Unclear" in shown
    assert "no_answer" in shown
    assert "7193471" not in shown, "results are somebody's data"
