from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.contrib.auth.models import User
from django.test import Client

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
