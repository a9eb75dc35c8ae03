from __future__ import annotations

import pytest

from onboarding.context import OnboardingContext
from workflows.errors import StepError


def test_the_copy_for_people_holds_no_token() -> None:
    context = OnboardingContext(access_token="at.secret")  # type: ignore[arg-type]
    assert "access_token" not in context.model_dump(mode="json")
    assert "secret" not in context.model_dump_json()
    assert "secret" not in repr(context)
    assert context.token == "at.secret"


@pytest.mark.parametrize("name", ["patient", "token", "visit"])
def test_a_step_that_came_too_early_is_told_what_is_missing(name: str) -> None:
    with pytest.raises(StepError, match=f"{name}_uuid|access_{name}") as error:
        getattr(OnboardingContext(), name)
    assert error.value.code == "steps_out_of_order"
