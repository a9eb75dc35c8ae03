import asyncio
import json
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from config import intake, wsgi
from tests.asgi import request
from tests.config.test_console import get as get_from_console


def get(application: Any, path: str) -> tuple[str, dict[str, str], bytes]:
    if application is intake.application:
        answer = asyncio.run(request(application, "GET", path))
        return answer.status_line, {name.title(): value for name, value in answer.headers.items()}, answer.content
    connections.close_all()  # the request would look at what a test before has left open
    return get_from_console(path, HTTP_HOST="anything.example")


def test_the_intake_has_no_address_but_that_of_submissions() -> None:
    for path in (
        *("/", "/admin/", "/admin/login/", "/static/x.css", "/v1", "/v2/submissions", "*", "http://a.b/admin/"),
        *("/v1/signals/parcels", "/v1/workflows", "/v1/workflows/x", "/v1/workflows/x/signals"),
    ):
        status, headers, body = get(intake.application, path)
        assert status == "404 Not Found"
        assert headers["Content-Type"] == "application/problem+json"
        assert json.loads(body)["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/metrics", "403 Forbidden"),
        ("/v1/submissions", "405 Method Not Allowed"),
        ("/v1/signals/parcels", "405 Method Not Allowed"),
        ("/v1/workflows", "405 Method Not Allowed"),
        ("/v1/workflows/x", "401 Unauthorized"),
        ("/v1/workflows/x/signals", "405 Method Not Allowed"),
        ("/v1/nothing", "404 Not Found"),
    ],
)
def test_the_console_has_all_of_the_api_for_any_host_and_before_any_middleware(path: str, status: str) -> None:
    answered, headers, _ = get(wsgi.application, path)
    assert answered == status
    assert headers["Content-Type"] == "application/problem+json"
    assert "X-Frame-Options" not in headers


@override_settings(ALLOWED_HOSTS=["*"])
def test_the_intake_runs_no_middleware() -> None:
    status, headers, _ = get(intake.application, "/healthz")
    assert status == "200 OK"
    assert headers.keys() == {"Content-Type", "Cache-Control", "Content-Length", "X-Request-Id"}
    assert "X-Frame-Options" in get(wsgi.application, "/nothing")[1]
