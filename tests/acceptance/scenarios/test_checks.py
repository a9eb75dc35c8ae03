"""The checks of `manage.py check` have nothing to say of the scenarios."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from tests.acceptance.scenarios.watching import (
    INSURANCE_BATCH,
    LOAN_APPROVAL,
    ORDER_FULFILMENT,
    TISSUE_ANALYSIS,
    VERIFICATION,
)
from workflows.checks import check_definitions
from workflows.definition import definitions

pytestmark = pytest.mark.django_db(transaction=True)

ALL = [ORDER_FULFILMENT, LOAN_APPROVAL, INSURANCE_BATCH, VERIFICATION, TISSUE_ANALYSIS]


def test_the_definitions_pass_the_checks_without_a_word(settings: Settings) -> None:
    settings.WORKFLOWS = ALL
    definitions.cache_clear()
    try:
        assert check_definitions() == []
    finally:
        definitions.cache_clear()
