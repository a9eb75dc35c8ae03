from collections.abc import Iterator

import pytest
from pytest_django import Settings

from tests.workflows.undoing import World
from workflows.definition import definitions


@pytest.fixture
def engine(settings: Settings) -> Iterator[None]:
    """Only the definition that the test makes (tests.engine.define) is known."""
    settings.WORKFLOWS = ["tests.engine.DEFINITION"]
    definitions.cache_clear()
    yield
    definitions.cache_clear()


@pytest.fixture
def world() -> World:
    return World()
