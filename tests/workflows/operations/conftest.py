import pytest
from django.contrib.auth.models import User

from tests.workflows.operations.bank import Bank
from tests.workflows.operations.people import user


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_superuser("boss")


@pytest.fixture
def anna(db: None) -> User:
    return user("anna", "decide", teams=("clinicians",))


@pytest.fixture
def ben(db: None) -> User:
    return user("ben", "decide")


@pytest.fixture
def bank() -> Bank:
    return Bank()
