"""The form of a decision: the fields of the answer, what is said of a wrong one, and that nothing typed is lost."""

from __future__ import annotations

import re
from datetime import date
from html import unescape

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel, Field, field_validator

from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import offered, page, task, url, words
from workflows import operations
from workflows.models import ManualTask, Signal


class Dose(BaseModel):
    milligrams: float = Field(gt=0, le=15, description="Per week.")
    start: date
    note: str = Field(default="", max_length=1000)


class Parcel(BaseModel):
    contents: list[str]

    @field_validator("contents")
    @classmethod
    def priced(cls, contents: list[str]) -> list[str]:
        return sorted(contents, key={"lamp": 1}.__getitem__)  # and of anything else it has no price


DOSE = f"{__name__}.Dose"
TYPED = {"answer-milligrams": "2.5", "answer-start": "2026-03-01", "answer-note": "Slowly."}


def test_the_decision_has_the_fields_of_the_answer_and_keeps_what_was_typed(as_: Login) -> None:
    client, row = as_("approver"), task(answer_model=DOSE)
    html = page(client, row)
    for shown in ['name="answer-milligrams"', "Per week.", 'type="date"', '<textarea name="answer-note"']:
        assert shown in html
    html = client.post(url(row, "decide"), {"decision": "approve", "reason": "Fine.", **TYPED}, follow=True)
    assert "Approved: task " in words(html.content.decode())
    assert Signal.objects.get().payload == {
        "approved": True,
        "reason": "Fine.",
        "by": "some-approver",
        "answer": {"milligrams": 2.5, "start": "2026-03-01", "note": "Slowly."},
    }


def test_enter_in_a_field_decides_nothing(as_: Login) -> None:
    """It presses the first button of the form, which is not to be yes."""
    form = page(as_("approver"), task(answer_model=DOSE)).split('/decide/">')[1]
    assert re.findall(r"<button([^>]*)>", form)[0].split() == ["disabled", "hidden"]


def test_a_refusal_keeps_what_was_typed_where_there_is_still_something_to_decide(as_: Login) -> None:
    client, row = as_("approver"), task(answer_model=DOSE)
    html = client.post(url(row, "decide"), {"decision": "reject", "reason": " ", **TYPED}).content.decode()
    assert re.search(r'<ul class="errorlist" id="id_reason_error"><li>Say why\.</li></ul>', html)
    assert "Slowly." in html
    assert 'value="2.5"' in html
    assert "This field is required" not in html
    operations.reject(row.pk, user=User.objects.create_superuser("boss"), reason="No.")
    html = client.post(url(row, "decide"), {"decision": "approve", **TYPED}).content.decode()
    assert "Boss rejected it already, at " in html
    assert "Your decision" not in html
    assert "Slowly." not in html


def test_a_model_that_breaks_on_an_answer_is_an_error_of_the_form_and_quotes_nothing(
    as_: Login, caplog: pytest.LogCaptureFixture
) -> None:
    client, row = as_("approver"), task(answer_model=f"{__name__}.Parcel")
    data = {"decision": "approve", "answer-contents": '["canary-7f3a"]'}
    html = client.post(url(row, "decide"), data).content.decode()
    assert "What checks the answer broke on it, and the error is ours: the log says where." in words(html)
    assert "Parcel broke on an answer" in caplog.text
    assert "test_decision_form.py" in caplog.text
    assert "canary-7f3a" not in caplog.text
    assert (ManualTask.objects.get().state, Signal.objects.count()) == ("open", 0)


def test_a_model_that_this_release_does_not_have_leaves_only_the_rejection(as_: Login) -> None:
    client, row = as_("approver"), task(answer_model="tests.nowhere.Dose")
    html = page(client, row)
    assert offered(html) == ["Assign to me", "Reject"]
    said = (
        "“Approve” cannot be chosen here. This release does not have what the answer is checked by (tests.nowhere.Dose)"
    )
    assert said in unescape(html)
    html = client.post(url(row, "decide"), {"decision": "approve", "reason": "My reasons."}).content.decode()
    assert "This release does not have what the answer is checked by" in html
    assert "My reasons." in html
    client.post(url(row, "decide"), {"decision": "reject", "reason": "Nobody can say."})
    assert ManualTask.objects.get().state == "rejected"
