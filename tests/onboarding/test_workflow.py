from __future__ import annotations

import inspect
from datetime import timedelta

from onboarding.steps import account, clinical
from onboarding.workflow import ONBOARDING


def test_it_expires_and_not_before_all_that_may_rightly_take_time() -> None:
    """One after the other: both waits, an outage of a day, and a long week-end until a person answers a question."""
    waits = account.LINKED_ACCOUNT_TIMEOUT + clinical.REVIEW_TIMEOUT
    assert ONBOARDING.expires_after is not None
    assert ONBOARDING.expires_after > waits + timedelta(days=1) + timedelta(days=4)


def test_every_key_names_the_step_it_is_for() -> None:
    for step in ONBOARDING.steps:
        source = inspect.getsource(step.function)  # type: ignore[arg-type]
        if "key_for(" in source:
            assert f'key_for(workflow, "{step.name}")' in source
