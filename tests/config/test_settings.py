import os
import subprocess
import sys

import pytest
from django.conf import settings

SECRET_KEY = "long-and-of-many-characters-0123456789-abcdefghijklmnopqrstuvwxyz"

PRODUCTION = {
    "DEBUG": "0",
    "SECRET_KEY": SECRET_KEY,
    "SEARCH_KEYS": "another-one-of-many-characters-0123456789-abcdefghijklmn",
    "ALLOWED_HOSTS": "onramp.example.com",
    "DATABASE_URL": "postgres://onramp@127.0.0.1:1/onramp",
    "SERVICES_URL": "https://services.example.com",
}


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh Python where the settings can be imported, with this environment."""
    names = ["DEBUG", "SECRET_KEY", "ALLOWED_HOSTS", "DATABASE_URL", "SECURE_PROXY_SSL_HEADER", "SERVICES_URL"]
    names.append("SEARCH_KEYS")
    # Empty, not absent: what is absent may come from a developer's .env.
    unset = dict.fromkeys(names, "")
    return subprocess.run(
        [sys.executable, "-c", f"import django; django.setup(); from django.conf import settings; {code}"],
        env={**os.environ, **unset, "DJANGO_SETTINGS_MODULE": "config.settings", **environment},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


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
def test_it_refuses_to_start_in_production(environment: dict[str, str], complaint: str) -> None:
    result = python("settings.DATABASES", **{**PRODUCTION, **environment})
    assert result.returncode != 0
    assert f"ImproperlyConfigured: {complaint}" in result.stderr


def test_it_runs_in_debug_with_nothing_set() -> None:
    result = python("print(settings.DATABASES['default']['ENGINE'])", DEBUG="1")
    assert result.stdout.strip() == "config.embedded", result.stderr


def test_the_environment_names_what_submissions_enter() -> None:
    result = python("print(repr(settings.SUBMISSION_WORKFLOW))", DEBUG="1", SUBMISSION_WORKFLOW="shipping")
    assert result.stdout.strip() == "'shipping'", result.stderr


def test_a_socket_folder_can_stand_in_the_database_url() -> None:
    result = python(
        "print(settings.DATABASES['default']['HOST'], settings.DATABASES['default']['NAME'])",
        **{**PRODUCTION, "DATABASE_URL": "postgres://onramp@%2Fvar%2Frun%2Fpostgresql/onramp"},
    )
    assert result.stdout.split() == ["/var/run/postgresql", "onramp"], result.stderr


def test_production_passes_the_deployment_checks() -> None:
    result = python(
        "from django.core.management import call_command;"
        "call_command('check', deploy=True, fail_level='WARNING', databases=None)",
        **PRODUCTION,
    )
    assert result.returncode == 0, result.stderr


def answers(environment: dict[str, str], path: str, **headers: str) -> str:
    """Status and Location of a plain http request, as settings of this environment answer it."""
    result = python(
        "from django.test import Client;"
        f"answer = Client(headers={headers!r}).get({path!r}, headers={{'host': 'onramp.example.com'}});"
        "print(answer.status_code, answer.headers.get('Location', ''))",
        **environment,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_production_answers_plain_http_with_a_redirect() -> None:
    assert answers(PRODUCTION, "/nothing/") == "301 https://onramp.example.com/nothing/"


def test_health_is_answered_in_plain_http() -> None:
    assert not answers(PRODUCTION, "/healthz").startswith("301")


@pytest.mark.parametrize(("environment", "secure"), [(PRODUCTION, "True True"), ({"DEBUG": "1"}, "False False")])
def test_the_cookies_of_production_are_for_https_only(environment: dict[str, str], secure: str) -> None:
    result = python("print(settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE)", **environment)
    assert result.stdout.strip() == secure, result.stderr


def test_debug_answers_plain_http() -> None:
    assert answers({"DEBUG": "1", "ALLOWED_HOSTS": "onramp.example.com"}, "/nothing/") == "404"


def test_the_header_of_a_proxy_is_believed_when_it_is_named() -> None:
    forwarded = {"x-forwarded-proto": "https"}
    assert answers(PRODUCTION, "/nothing/", **forwarded).startswith("301")
    assert answers({**PRODUCTION, "SECURE_PROXY_SSL_HEADER": "X-Forwarded-Proto"}, "/nothing/", **forwarded) == "404"


def test_logs_go_to_stderr_one_readable_line_each() -> None:
    result = python("import logging; logging.getLogger('workflows.worker.loop').info('Claimed %s', 7)", DEBUG="1")
    assert result.stdout == ""
    assert result.stderr.rstrip().endswith("workflows.worker.loop: Claimed 7")
    assert "INFO" in result.stderr


def test_without_a_secret_for_search_keys_the_deployment_checks_say_what_to_do() -> None:
    result = python(
        "from django.core.management import call_command;"
        "call_command('check', deploy=True, fail_level='WARNING', databases=None)",
        **{**PRODUCTION, "SEARCH_KEYS": ""},
    )
    assert result.returncode == 1
    assert "workflows.W016" in result.stderr
    assert "SEARCH_KEYS=<new>,from-SECRET_KEY" in result.stderr


def test_the_secrets_of_search_keys_are_a_list() -> None:
    result = python("print(settings.SEARCH_KEYS)", **{**PRODUCTION, "SEARCH_KEYS": " new , old,"})
    assert result.stdout.strip() == "['new', 'old']", result.stderr
    result = python("print(len(settings.SEARCH_KEYS))", DEBUG="1")
    assert result.stdout.strip() == "1", result.stderr
