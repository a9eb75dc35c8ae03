"""Views that the intake is measured against, under gunicorn's threads: the least that a Django view can do, and ours.

`tests.benchmark.views:one_insert`, `tests.benchmark.views:django_view`.
"""

from __future__ import annotations

import json

from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.test import override_settings
from django.urls import URLPattern, path

import config.wsgi  # noqa: F401 (sets Django up)
from workflows.api.health import healthz

_INSERT = """
    INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload) VALUES (%s, 'entered', %s::jsonb)
    RETURNING id
"""


def insert(request: HttpRequest) -> JsonResponse:
    """Parse the body, insert a row. No API key, no size limit, no search keys, no duplicates, no time limit."""
    payload = json.loads(request.body)
    with connection.cursor() as cursor:
        cursor.execute(_INSERT, [request.headers["Idempotency-Key"], json.dumps(payload)])
        (pk,) = cursor.fetchone()
    response = JsonResponse({"id": pk}, status=202)
    response["Content-Length"] = str(len(response.content))  # else it would be sent in chunks
    return response


urlpatterns: list[URLPattern] = [path("v1/submissions", insert), path("healthz", healthz)]


def _without_middleware(urlconf: str) -> WSGIHandler:
    with override_settings(MIDDLEWARE=[]):
        handler = WSGIHandler()
    handler.request_class = type("Request", (WSGIRequest,), {"urlconf": urlconf})
    return handler


one_insert = _without_middleware("tests.benchmark.views")
django_view = _without_middleware("workflows.api.urls")
