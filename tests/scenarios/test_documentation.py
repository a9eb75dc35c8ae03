"""The examples that docs/how-to shows are code that runs: excerpts, to the letter, of these files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from pytest_django import Settings

from workflows.checks import check_definitions
from workflows.definition import definitions

# The pages all of whose code is such an excerpt. The others show a line or two of nobody's workflow.
PAGES = ["wait", "order", "test"]


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_its_code_is_the_code_that_runs(page: str) -> None:
    shown = blocks((Path(settings.BASE_DIR) / f"docs/how-to/{page}.md").read_text())
    assert shown
    for block in shown:
        first, _, code = block.partition("\n")
        name = re.fullmatch(r"# (tests/scenarios/\w+\.py)", first)
        assert name, f"of which file is this?\n{block}"
        rest = (Path(settings.BASE_DIR) / name[1]).read_text()
        for excerpt in code.split("\n...\n"):  # where something is left out
            _, found, rest = rest.partition(excerpt.rstrip("\n") + "\n")
            assert found, f"{name[1]} does not hold, in this order:\n{excerpt}"


ALL = [
    "order_fulfilment.ORDER_FULFILMENT",
    "loan_approval.LOAN_APPROVAL",
    "insurance_verification.INSURANCE_BATCH",
    "insurance_verification.VERIFICATION",
    "tissue_analysis.TISSUE_ANALYSIS",
]


@pytest.mark.django_db(transaction=True)
def test_the_checks_of_definitions_have_nothing_to_say_of_the_scenarios(settings: Settings) -> None:
    settings.WORKFLOWS = [f"tests.scenarios.{name}" for name in ALL]
    definitions.cache_clear()
    try:
        assert list(check_definitions()) == []
    finally:
        definitions.cache_clear()
