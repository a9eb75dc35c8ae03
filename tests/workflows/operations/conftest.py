import pytest
from django.contrib.auth.models import User

from tests.workflows.operations.bank import Bank


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_superuser("boss")


@pytest.fixture
def bank() -> Bank:
    return Bank()
