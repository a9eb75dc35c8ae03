from collections.abc import Iterator

import pytest
from pytest_django import Settings

from workflows.definition import definitions


@pytest.fixture
def engine(settings: Settings) -> Iterator[None]:
    """Only the definition that the test makes (tests.engine.define) is known."""
    settings.WORKFLOWS = ["tests.engine.DEFINITION"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()
