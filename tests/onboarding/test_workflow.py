from __future__ import annotations

import inspect
from datetime import timedelta

from onboarding.steps import account, clinical
from onboarding.workflow import ONBOARDING
from workflows.definition import definitions


def test_the_list_is_what_the_project_runs() -> None:
    assert definitions()["onboarding"] is ONBOARDING
    assert len(ONBOARDING.steps) == 21
    assert len({step.name for step in ONBOARDING.steps}) == 21


def test_it_expires_and_not_before_all_that_may_rightly_take_time() -> None:
    """One after the other: both waits, an outage of a day, and a long week-end until a person answers a question."""
    waits = account.LINKED_ACCOUNT_TIMEOUT + clinical.REVIEW_TIMEOUT
    assert ONBOARDING.expires_after is not None
    assert ONBOARDING.expires_after > waits + timedelta(days=1) + timedelta(days=4)


def test_what_can_be_mended_later_is_best_effort() -> None:
    assert [step.name for step in ONBOARDING.steps if step.best_effort] == [
        "verify_insurance",
        "attach_payment_card",
        "set_communication_preferences",
        "link_identity_verification",
        "send_confirmation",
    ]


def test_what_changes_something_elsewhere_is_once_or_repeatable() -> None:
    changing = [step for step in ONBOARDING.steps if "key_for(" in inspect.getsource(step.function)]  # type: ignore[arg-type]
    assert len(changing) == 15
    assert all(step.once != step.repeatable for step in changing)
    assert [step.name for step in changing if step.repeatable] == ["save_questionnaire"]


def test_every_key_names_the_step_it_is_for() -> None:
    for step in ONBOARDING.steps:
        source = inspect.getsource(step.function)  # type: ignore[arg-type]
        if "key_for(" in source:
            assert f'key_for(workflow, "{step.name}")' in source
