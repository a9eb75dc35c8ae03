"""Before a deploy: what a list would do to the workflows that are under way, counted, with an example."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from pydantic import BaseModel

from tests.engine import define, submit
from workflows.definition import Step
from workflows.features.doctor import in_flight
from workflows.models import FollowUp, Workflow

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("engine")]


class Order(BaseModel):
    sku: str


def charge(**_: Any) -> None: ...
def thank(**_: Any) -> None: ...


def called(step: str, result: Any, state: str = "done", **fields: Any) -> Workflow:
    row = submit(**fields)
    row.effects.create(step=step, state=state, attempt=1, idempotency_key=f"{row.key}:{step}", result=result)
    return row


def check() -> tuple[int, list[tuple[str, str, int, int]]]:
    """The exit code, and what was found."""
    out, code = StringIO(), 0
    try:
        call_command("checkinflight", "--json", stdout=out)
    except SystemExit as ended:
        code = int(str(ended.code))
    found = json.loads(out.getvalue())["found"]
    return code, [(each["kind"], each["workflow_type"], each["number"], each["example"]) for each in found]


def test_each_that_would_break_is_counted_with_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "BATCH", 2)
    define([Step(charge, once=True), thank])
    gone = called("reserve", {})
    called("reserve", None, "unknown")
    unreadable = called("charge", {"number": "canary"})
    unknown = submit(workflow_type="shipping")
    deferred = submit(status="COMPLETE", context={"number": "canary"})
    FollowUp.objects.create(workflow=deferred, step="post", queue="default", due_at=deferred.created_at)
    called("reserve", {}, status="COMPLETE")
    assert check() == (
        1,
        [
            ("context_unreadable", "test", 1, deferred.pk),
            ("result_unreadable", "test", 1, unreadable.pk),
            ("step_gone", "test", 1, deferred.pk),
            ("undeclared_step", "test", 2, gone.pk),
            ("unknown_type", "shipping", 1, unknown.pk),
        ],
    )


def test_it_counts_workflows_and_not_findings() -> None:
    define([thank])
    for _ in range(2):
        called("reserve", {})
    submit()
    err = StringIO()
    with pytest.raises(SystemExit):
        call_command("checkinflight", stdout=StringIO(), stderr=err)
    assert err.getvalue().strip() == "3 under way; 2 would break."


def test_what_can_go_on_is_no_finding() -> None:
    define([Step(charge, once=True, formerly=("pay",)), thank], retired=("reserve",))
    called("pay", {"number": 1, "left_the_context": True})
    called("reserve", {})
    called("post", None, "not_done")
    row = submit(status="COMPLETE", context={"number": 1})
    FollowUp.objects.create(workflow=row, step="thank", queue="default", due_at=row.created_at)
    given_up = submit(status="COMPLETE", context={"number": "canary"})
    FollowUp.objects.create(workflow=given_up, step="thank", queue="default", due_at=None)
    assert check() == (0, [])


def test_an_input_that_is_refused_by_now_is_told_without_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    define([thank], input_class=Order)
    row = submit({"sku": ["canary"]})
    submit({"sku": ["canary"]}, compensating=True)  # none of its steps runs any more
    assert check() == (1, [("input_refused", "test", 1, row.pk)])
    with pytest.raises(SystemExit):
        call_command("checkinflight")
    assert "sku" in (told := capsys.readouterr().out)
    assert "canary" not in told
