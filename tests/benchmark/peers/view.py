"""A thin Django view: it parses the body, and has the peer of PEER store a job with it. `…peers.view:application`"""

from __future__ import annotations

import importlib
import json
import os

from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path

application = get_wsgi_application()  # before the peer is imported: some need that Django is set up
peer = importlib.import_module(f"tests.benchmark.peers.{os.environ['PEER']}")


def submit(request: HttpRequest) -> JsonResponse:
    """No API key, no size limit, no search keys, no duplicates, no time limit."""
    stored = peer.enqueue(json.loads(request.body))
    response = JsonResponse({"id": str(stored)}, status=202)
    response["Content-Length"] = str(len(response.content))  # else it would be sent in chunks
    return response


def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns: list[URLPattern] = [path("v1/submissions", submit), path("healthz", healthz)]
