"""A form that fails for its fields: the pages, the form of a correction and the operator's API name them."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import words
from tests.workflows.features.operator_api.people import Program
from workflows.models import Workflow

LEADS_CAN = "What was sent can be corrected, and the workflow retried: ask a support lead or an engineer."
PEOPLE = ("support", "support lead", "auditor")
SAID = {"last_error_code": "invalid_payload", "current_step": "validate_payload"}


def invalid(**fields: Any) -> Workflow:
    payload = {"patient": {"email": "ada@example.com", "phone": "12-345-marker"}, "checkout": {"program": "body"}}
    message = (
        "patient.phone: not a phone number; questionnaire.answers.0.code: missing; Marker.\u2022\u2022\u2022: missing"
    )
    return rows.failed(workflow_type="onboarding", payload=payload, last_error_message=message, **SAID, **fields)


def test_support_reads_which_fields_are_wrong_and_what_to_tell(as_: Login) -> None:
    row, client = invalid(), as_("support")
    page = client.get(f"/admin/workflows/workflow/{row.pk}/change/").context
    assert "missing or wrong. Phone: not a phone number. Code: missing. Ended at" in page["standing"]
    assert page["to_tell"].endswith("send the form again. Missing or wrong: Phone, Code.")
    assert "arker" not in page["standing"] + page["to_tell"]
    detail = Program(User.objects.get(username="some-support")).get(f"workflows/{row.pk}")
    assert "Phone: not a phone number." in detail["standing"]
    assert detail["to_tell"] == page["to_tell"]
    other = rows.failed(workflow_type="onboarding", last_error_message="patient.phone: not a phone number")
    assert "Phone" not in client.get(f"/admin/workflows/workflow/{other.pk}/change/").context["standing"]


def test_support_reads_who_can_correct_a_failure_that_a_retry_does_not_mend(as_: Login) -> None:
    address = f"/admin/workflows/workflow/{invalid().pk}/change/"
    told = {
        role: "ask a support lead or an engineer" in words(as_(role).get(address).content.decode()) for role in PEOPLE
    }
    assert told == {"support": True, "support lead": False, "auditor": False}
    Workflow.objects.update(last_error_code="card_declined")
    assert "ask a support lead or" not in words(as_("support").get(address).content.decode()), "no field is at fault"
    Workflow.objects.update(last_error_code="refused")
    assert "ask a support lead or" not in words(as_("support").get(address).content.decode()), "a retry may help"


def test_the_form_of_a_correction_begins_with_what_is_wrong_and_marks_it(as_: Login) -> None:
    row, client = invalid(), as_("superuser")
    User.objects.update(email="boss@clinic.example", date_joined="2020-01-01T00:00:00Z")
    rows.corrector("some-superuser")
    answer = client.get(f"/admin/workflows/workflow/{row.pk}/correct/")
    form = answer.context["form"]
    assert next(iter(form.fields)) == "patient.phone"
    assert form.fields["patient.phone"].help_text.startswith("Missing or wrong: not a phone number. Was: ending")
    assert [name for name, each in form.fields.items() if each.widget.attrs.get("aria-invalid")] == ["patient.phone"]
    text = words(answer.content.decode())
    assert "Missing or wrong, too, and not to be corrected here: Code." in text
    assert "A retry alone" not in text
    assert "A retry alone" in words(client.get(f"/admin/workflows/workflow/{row.pk}/retry/").content.decode())
