from __future__ import annotations

from uuid import uuid4

import pytest
from pydantic import ValidationError

from onboarding.context import OnboardingContext
from workflows.errors import StepError


def test_the_copy_for_people_holds_no_token() -> None:
    context = OnboardingContext(access_token="at.secret")  # type: ignore[arg-type]
    assert "access_token" not in context.model_dump(mode="json")
    assert "secret" not in context.model_dump_json()
    assert "secret" not in repr(context)
    assert context.token == "at.secret"


def test_a_result_gets_the_fields_type() -> None:
    context = OnboardingContext()
    patient = uuid4()
    context.patient_uuid = str(patient)  # type: ignore[assignment]
    assert context.patient == patient


def test_a_result_of_another_type_is_refused() -> None:
    context = OnboardingContext()
    with pytest.raises(ValidationError):
        context.patient_uuid = "nobody"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "field"), [("patient", "patient_uuid"), ("token", "access_token"), ("visit", "visit_uuid")]
)
def test_a_step_that_came_too_early_is_told_what_is_missing(name: str, field: str) -> None:
    with pytest.raises(StepError, match=f"No earlier step has provided {field}") as error:
        getattr(OnboardingContext(), name)
    assert error.value.code == "steps_out_of_order"
