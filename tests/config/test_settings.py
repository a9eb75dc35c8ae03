import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import Client, override_settings

from tests.servers import gunicorn

SECRET_KEY = "long-and-of-many-characters-0123456789-abcdefghijklmnopqrstuvwxyz"

PRODUCTION = {
    "EMAIL_URL": "smtp://mail.example.com:25",
    "DEBUG": "0",
    "SECRET_KEY": SECRET_KEY,
    "DATA_KEYS": "yet-another-one-of-many-characters-0123456789-abcdefghij",
    "SEARCH_KEYS": "another-one-of-many-characters-0123456789-abcdefghijklmn",
    "ALLOWED_HOSTS": "onramp.example.com",
    "DATABASE_URL": "postgres://onramp@127.0.0.1:1/onramp",
    "SERVICES_URL": "https://services.example.com",
}
# Empty, not absent: what is absent may come from a developer's .env.
UNSET = dict.fromkeys([*PRODUCTION.keys() - {"SERVICES_URL"}, "SECURE_PROXY_SSL_HEADER"], "")


def settings_of(**environment: str) -> dict[str, Any]:
    """The project's settings, read again in this environment."""
    with patch.dict(os.environ, {**UNSET, **environment}):
        names = runpy.run_path(str(settings.BASE_DIR / "config" / "settings.py"))
    return {name: value for name, value in names.items() if name.isupper()}


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"SECRET_KEY": ""}, "SECRET_KEY is not set"),
        ({"DATABASE_URL": ""}, "DATABASE_URL is not set, and the embedded PostgreSQL is for DEBUG only"),
        ({"DATABASE_URL": "mysql://onramp@127.0.0.1/onramp"}, "DATABASE_URL must name a PostgreSQL server"),
        ({"DATABASE_URL": "sqlite:///onramp.sqlite3"}, "DATABASE_URL must name a PostgreSQL server"),
        ({"DATABASE_URL": "nonsense"}, "DATABASE_URL must name a PostgreSQL server"),
    ],
)
@pytest.mark.filterwarnings("ignore:Engine not recognized from url")
def test_it_refuses_to_start_in_production(environment: dict[str, str], complaint: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=complaint):
        settings_of(**{**PRODUCTION, **environment})


def test_a_socket_folder_can_stand_in_the_database_url() -> None:
    url = "postgres://onramp@%2Fvar%2Frun%2Fpostgresql/onramp"
    database = settings_of(**{**PRODUCTION, "DATABASE_URL": url})["DATABASES"]["default"]
    assert (database["HOST"], database["NAME"]) == ("/var/run/postgresql", "onramp")


@contextmanager
def settings_as_in(**environment: str) -> Iterator[None]:
    """But for the databases, which are open, and for the loggers."""
    made = settings_of(**environment)
    with override_settings(**{name: value for name, value in made.items() if name not in ("DATABASES", "LOGGING")}):
        yield


def check(**environment: str) -> None:
    with settings_as_in(**environment):
        call_command("check", deploy=True, fail_level="WARNING", databases=None)


def test_production_passes_the_deployment_checks_which_say_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_ALLOW_ASYNC_UNSAFE", raising=False)  # while a browser is open in this process
    check(**PRODUCTION)
    with pytest.raises(SystemCheckError, match=r"(?s)workflows\.W016.*SEARCH_KEYS=<new>,from-SECRET_KEY"):
        check(**{**PRODUCTION, "SEARCH_KEYS": ""})


def answers(environment: dict[str, str], path: str, **headers: str) -> str:
    """Status and Location of a plain http request, as settings of this environment answer it."""
    with settings_as_in(**environment):
        answer = Client(headers=headers).get(path, headers={"host": "onramp.example.com"})
    return f"{answer.status_code} {answer.headers.get('Location', '')}".strip()


def test_production_answers_plain_http_with_a_redirect_but_for_its_health() -> None:
    assert answers(PRODUCTION, "/nothing/") == "301 https://onramp.example.com/nothing/"
    assert not answers(PRODUCTION, "/healthz").startswith("301")


@pytest.mark.parametrize(("environment", "secure"), [(PRODUCTION, True), ({"DEBUG": "1"}, None)])
def test_the_cookies_of_production_are_for_https_only(environment: dict[str, str], secure: bool | None) -> None:
    made = settings_of(**environment)
    assert (made.get("SESSION_COOKIE_SECURE"), made.get("CSRF_COOKIE_SECURE")) == (secure, secure)


def test_the_header_of_a_proxy_is_believed_when_it_is_named() -> None:
    forwarded = {"x-forwarded-proto": "https"}
    assert answers(PRODUCTION, "/nothing/", **forwarded).startswith("301")
    assert answers({**PRODUCTION, "SECURE_PROXY_SSL_HEADER": "X-Forwarded-Proto"}, "/nothing/", **forwarded) == "404"


@pytest.mark.slow
def test_json_lines_have_the_listed_fields_and_no_message_of_an_exception() -> None:
    code = """
import django, logging
django.setup()
logger = logging.getLogger("some.library")
try:
    raise ValueError("Ada Lovelace")
except ValueError:
    logger.exception("Failed %s", 7, extra={"patient": "Ada Lovelace"}, stack_info=True)
"""
    environment = {
        **os.environ,
        **UNSET,
        "DEBUG": "1",
        "LOG_FORMAT": "json",
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=settings.BASE_DIR, capture_output=True, text=True, check=True
    )
    line = json.loads(result.stderr)
    assert list(line) == ["time", "level", "process", "logger", "message", "traceback"]
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "some.library", "Failed 7")
    assert line["traceback"].endswith("ValueError")
    assert "Ada" not in result.stderr


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("application", ["config.intake", "config.wsgi"])
def test_gunicorns_own_lines_are_json_as_well(application: str, tmp_path: Path) -> None:
    with (
        gunicorn(application, tmp_path, LOG_FORMAT="json", WEB_CONCURRENCY="1") as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        client.sendall(b"Ada\r\n\r\n")
        assert client.makefile("rb").read().startswith(b"HTTP/1.1 400")
    lines = [json.loads(line) for line in server.printed().splitlines()]
    assert sum(line["message"].startswith("Refused what is not HTTP") for line in lines) == 1
    assert "Ada" not in server.printed()


def test_the_secrets_of_search_keys_are_a_list() -> None:
    assert settings_of(**{**PRODUCTION, "SEARCH_KEYS": " new , old,"})["SEARCH_KEYS"] == ["new", "old"]
    assert len(settings_of(DEBUG="1")["SEARCH_KEYS"]) == 1
