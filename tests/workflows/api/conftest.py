import pytest
from django.test import Client

from workflows.ingress import api_keys, webhooks


@pytest.fixture
def client() -> Client:
    return Client(enforce_csrf_checks=True)


@pytest.fixture
def key() -> str:
    return api_keys.create("shop")


@pytest.fixture
def secret() -> str:
    return webhooks.create("parcels")
