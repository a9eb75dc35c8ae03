from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connections
from pytest_django import Settings

from tests.engine import another_connection
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


@pytest.fixture
def role() -> Iterator[str]:
    """A role that owns nothing, and may read and write nothing."""
    name = f"onramp_reader_{uuid4().hex}"  # roles are the server's: another test may have one just now
    with another_connection() as other:
        other.execute(f"CREATE ROLE {name}")
        yield name
        connections.close_all()
        other.execute(f"DROP OWNED BY {name}")
        other.execute(f"DROP ROLE {name}")
