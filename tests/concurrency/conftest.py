from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection

from tests.concurrency.rivals import Rivals
from tests.workflows.conftest import engine

__all__ = ["engine"]


@pytest.fixture
def rivals() -> Iterator[Rivals]:
    rivals = Rivals()
    yield rivals
    rivals.close()


@pytest.fixture
def anna(transactional_db: None) -> User:
    return User.objects.create_superuser("anna")


@pytest.fixture
def ben(transactional_db: None) -> User:
    return User.objects.create_superuser("ben")


@pytest.fixture
def no_vacuum() -> Iterator[None]:
    """No autovacuum on the table, which would clean up behind the test; and no dead rows of others."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE workflows_workflow, workflows_signal, workflows_service CASCADE")
        cursor.execute("ALTER TABLE workflows_workflow SET (autovacuum_enabled = off)")
        yield
        cursor.execute("ALTER TABLE workflows_workflow RESET (autovacuum_enabled)")
