"""Views that the intake is measured against, under gunicorn's threads: the least that a Django view can do, and ours.

`tests.benchmark.views:one_insert`, `tests.benchmark.views:django_view`.
"""

from __future__ import annotations

import json

from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import URLPattern, path

from config.intake import IntakeHandler, IntakeRequest
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


class OneInsertRequest(IntakeRequest):
    urlconf = "tests.benchmark.views"


class OneInsertHandler(IntakeHandler):
    request_class = OneInsertRequest


one_insert = OneInsertHandler()
django_view = IntakeHandler()
