"""The document has each address and method of the API, and no other; tests/acceptance/test_openapi.py asks servers."""

import re
from collections.abc import Iterator
from typing import Any

from django.test import Client
from django.urls import URLResolver

from workflows.api import urls

METRICS = "/metrics"  # in Prometheus' text format


def _routes(patterns: list[Any], prefix: str = "/") -> Iterator[str]:
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from _routes(each.url_patterns, f"{prefix}{each.pattern}")
        elif each.name:
            yield f"{prefix}{each.pattern}"


def test_the_document_has_each_address_and_method(client: Client) -> None:
    document: dict[str, Any] = client.get("/v1/openapi.json").json()
    routes = _routes(urls.urlpatterns)
    assert {re.sub("<(?:str|int):(.*?)>", r"{\1}", route) for route in routes} - {METRICS} == document["paths"].keys()
    for path, item in document["paths"].items():
        allowed = client.generic("TRACE", path.replace("{number}", "7").replace("{", "").replace("}", "")).headers[
            "Allow"
        ]
        assert {name.upper() for name in item if name != "parameters"} == {*allowed.split(", ")} - {"HEAD"}
