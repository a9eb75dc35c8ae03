"""The console's entry, as gunicorn calls it."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from unittest.mock import Mock
from wsgiref.util import setup_testing_defaults

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.signals import request_started
from django.db import connection
from django.test import Client, override_settings

from config import wsgi
from tests import engine
from workflows.models import Workflow
from workflows.postgres.deadlines import query_in_time


def get(path: str, **environ: Any) -> tuple[str, dict[str, str], bytes]:
    environ = {"PATH_INFO": path, "HTTP_HOST": "testserver", **environ}
    setup_testing_defaults(environ)
    started: list[Any] = []
    application: Any = wsgi.application
    response = application(environ, lambda status, headers: started.extend([status, dict(headers)]))
    body = b"".join(response)
    response.close()
    return started[0], started[1], body


def terminate_our_connection() -> None:
    assert connection.connection is not None
    with engine.another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [connection.connection.info.backend_pid])


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_died_between_two_requests_is_replaced(client: Client) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    assert get("/admin/", HTTP_COOKIE=cookie)[0] == "200 OK"
    terminate_our_connection()
    assert get("/admin/", HTTP_COOKIE=cookie)[0] == "200 OK"


@pytest.mark.django_db(transaction=True)
def test_a_request_of_the_api_does_not_try_the_connection_first() -> None:
    """Within the time limit the connection is the one that was limited, never one that replaced it unseen."""

    def count_on_the_same_connection() -> int:
        before = connection.connection
        with pytest.raises(Exception, match=r"terminat|closed|lost"):
            Workflow.objects.count()
        assert connection.connection is before
        raise LookupError

    Workflow.objects.count()
    request_started.send(None)
    terminate_our_connection()
    with pytest.raises(LookupError):
        query_in_time(count_on_the_same_connection)
    connection.close()


@override_settings(ALLOWED_HOSTS=["onramp.example.com"])
@pytest.mark.django_db
def test_the_pages_are_answered_for_the_hosts_of_the_settings_only() -> None:
    assert get("/nothing", HTTP_HOST="10.0.0.7:8001")[0] == "400 Bad Request"
    assert get("/nothing", HTTP_HOST="onramp.example.com")[0] == "404 Not Found"


@pytest.mark.django_db
def test_an_error_of_the_console_is_logged_without_the_addresses_that_the_api_has(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.force_login(User.objects.create_user("ada", is_staff=True))
    assert client.get("/admin/workflows/workflow/").status_code == 403
    assert "Forbidden: /admin/workflows/workflow/" in caplog.text
    assert "Resolver404" not in caplog.text


@pytest.mark.django_db
def test_no_form_takes_a_file_nor_more_than_a_form_has(client: Client) -> None:
    """Django would write a file of any size to the disk, for anybody who has opened the sign-in."""
    form = {"username": "ada", "password": "x"}
    assert client.post("/admin/login/", form).status_code == 200
    assert client.post("/admin/login/", {**form, "file": BytesIO(b"x")}).status_code == 400
    body = Mock()
    assert client.post("/admin/login/", form, **{"CONTENT_LENGTH": 10**9, "wsgi.input": body}).status_code == 400
    body.read.assert_not_called()


@pytest.mark.django_db(transaction=True)
def test_the_root_leads_to_the_console() -> None:
    status, headers, _ = get("/")
    assert (status, headers["Location"]) == ("302 Found", "/admin/")
