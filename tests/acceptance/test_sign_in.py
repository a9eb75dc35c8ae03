"""The throttle over real HTTP: gunicorn's processes count together, whatever process answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User

from tests.servers import gunicorn

PASSWORD = "correct horse battery"


def sign_in(url: str, password: str, address: str) -> httpx.Response:
    """On a connection and with cookies of its own; the proxy in front of us has seen `address`."""
    with httpx.Client(base_url=url, headers={"X-Forwarded-For": address}) as client:
        return _sign_in(client, password)


@contextmanager
def signed_in(url: str, password: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url) as client:
        assert _sign_in(client, password).status_code == 302
        yield client


def _sign_in(client: httpx.Client, password: str) -> httpx.Response:
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', client.get("/admin/login/").text)
    assert token
    return client.post("/admin/login/", data={"username": "ada", "password": password, "csrfmiddlewaretoken": token[1]})


@pytest.mark.django_db(transaction=True)
def test_two_processes_refuse_after_five_guesses_from_any_address(tmp_path: Path) -> None:
    User.objects.create_superuser("ada", password=PASSWORD)
    environment = {"WEB_CONCURRENCY": "2", "CLIENT_ADDRESS_HEADER": "X-Forwarded-For"}
    with gunicorn("config.wsgi", tmp_path, **environment) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert sign_in(url, PASSWORD, "192.0.2.1").status_code == 302
        guesses = [sign_in(url, f"guess {number}", f"198.51.100.{number}").status_code for number in range(40)]
        assert guesses == [200] * 4 + [429] * 36
        assert sign_in(url, PASSWORD, "198.51.100.200").status_code == 429
        assert sign_in(url, PASSWORD, "192.0.2.1").status_code == 302  # where she is known
    printed = server.printed()
    assert "Locking out ada from 198.51.100.4" in printed
    assert PASSWORD not in printed
    assert "guess" not in printed
