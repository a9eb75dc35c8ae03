"""`/v1/openapi.json`: the API for programs, in OpenAPI 3.1. docs/api.md describes it in words."""

from __future__ import annotations

from pathlib import Path

from django.http import HttpRequest, HttpResponse

from workflows.api.problems import api

_DOCUMENT = Path(__file__).with_suffix(".json").read_bytes()


@api("GET")
def openapi(request: HttpRequest) -> HttpResponse:
    """The same document on every server, for everybody."""
    return HttpResponse(_DOCUMENT, content_type="application/json")
