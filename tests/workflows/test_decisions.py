"""People and the engine together: what is clicked in the console, a worker acts upon, and the page tells."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.engine import ENGINE, define, make_due, submit, work
from workflows.definition import Step
from workflows.errors import UnknownOutcome
from workflows.models import ManualTask, Workflow

pytestmark = ENGINE


@pytest.fixture
def anna() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("anna"))
    return client


def page(client: Client, workflow: Workflow) -> str:
    return client.get(f"/admin/workflows/workflow/{workflow.pk}/change/").content.decode()


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
