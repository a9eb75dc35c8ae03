"""The document has each address and method of the API, and no other; tests/acceptance/test_openapi.py asks servers."""

import re
from typing import Any

from django.test import Client

from workflows.api import urls

METRICS = "/metrics"  # in Prometheus' text format


def test_the_document_has_each_address_and_method(client: Client) -> None:
    document: dict[str, Any] = client.get("/v1/openapi.json").json()
    routes = [str(each.pattern) for each in urls.urlpatterns if each.name]
    assert {re.sub("<str:(.*?)>", r"{\1}", f"/{route}") for route in routes} - {METRICS} == document["paths"].keys()
    for path, item in document["paths"].items():
        allowed = client.generic("TRACE", path.replace("{", "").replace("}", "")).headers["Allow"]
        assert {name.upper() for name in item if name != "parameters"} == {*allowed.split(", ")} - {"HEAD"}
