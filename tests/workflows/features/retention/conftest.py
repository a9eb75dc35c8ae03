from collections.abc import Iterator

import pytest
from pytest_django import Settings

from tests.workflows import rows
from workflows.definition import definitions


@pytest.fixture(autouse=True)
def parcels(settings: Settings) -> Iterator[None]:
    settings.WORKFLOWS = [f"{rows.__name__}.PARCEL", "onboarding.workflow.ONBOARDING"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()
