from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from tests.workflows import refusing
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
def ada(transactional_db: None) -> User:
    return User.objects.create_superuser("ada")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def nothing_called() -> None:
    refusing.CALLED.clear()
