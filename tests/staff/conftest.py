from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.test import Client

from tests.groups import make_groups
from tests.staff.openid import ADA, Browser, OpenIdProvider

PASSWORD = "correct horse battery"

SIGN_IN = "/admin/login/"


class CountingHasher(MD5PasswordHasher):
    """A cheap hasher that tells how often a password was hashed."""

    algorithm = "counting"
    hashed = 0

    def encode(self, password: str, salt: str) -> str:
        type(self).hashed += 1
        return super().encode(password, salt)


@pytest.fixture
def hasher(settings: Any) -> type[CountingHasher]:
    settings.PASSWORD_HASHERS = ["tests.staff.conftest.CountingHasher"]
    CountingHasher.hashed = 0
    return CountingHasher


@pytest.fixture
def ada(db: None, hasher: type[CountingHasher]) -> User:
    user = User.objects.create_user("ada", password=PASSWORD, is_staff=True)
    hasher.hashed = 0
    return user


def sign_in(name: str = "ada", password: str = PASSWORD, *, address: str = "192.0.2.1", **extra: Any) -> Any:
    """The answer to a sign-in, from a browser of its own."""
    return Client().post(SIGN_IN, {"username": name, "password": password}, REMOTE_ADDR=address, **extra)


@pytest.fixture(scope="session")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider(tmp_path_factory.mktemp("openid"))
    yield provider
    provider.close()


@pytest.fixture
def provider(process: OpenIdProvider, db: None, hasher: Any, settings: Any) -> OpenIdProvider:
    make_groups()
    process.tell(users={"ada": ADA}, clock=0, asks=False)
    process.logouts.queue.clear()
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = process.issuer, "onramp"
    settings.OIDC_CLIENT_SECRET = "secret of onramp"
    settings.OIDC_GROUPS = {"onramp-support": "support", "onramp-leads": "support lead"}
    return process


@pytest.fixture
def browser(provider: OpenIdProvider) -> Browser:
    return Browser()
