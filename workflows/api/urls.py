"""URLs of the API and of a process's health. The console serves all of them, the intake only `INTAKE`."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path
from django.urls.resolvers import RegexPattern, RoutePattern

from workflows import extras
from workflows.api.health import healthz, readyz
from workflows.api.of_workflow import cancel, history
from workflows.api.openapi import openapi
from workflows.api.problems import View, not_found, not_installed
from workflows.api.signals import send_signal, webhook
from workflows.api.submissions import submission, submit
from workflows.api.workflows import start_workflow, workflow
from workflows.extension import installed


def _metrics(name: str) -> View:
    try:
        view: View = getattr(extras.load("workflows.api.metrics"), name)
    except extras.ExtraMissing as missing:
        return not_installed(missing)
    return view


_OF_BOTH: list[URLPattern] = [
    path("v1/submissions", submit, name="submissions"),
    path("v1/submissions/<str:key>", submission, name="submission"),
    path("v1/openapi.json", openapi, name="openapi"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]

urlpatterns: list[URLPattern | URLResolver] = [
    *_OF_BOTH,
    path("metrics", _metrics("metrics"), name="metrics"),
    path("v1/workflows", start_workflow, name="workflows"),
    path("v1/workflows/<str:key>", workflow, name="workflow"),
    path("v1/workflows/<str:key>/history", history, name="workflow-history"),
    path("v1/workflows/<str:key>/cancel", cancel, name="workflow-cancel"),
    path("v1/workflows/<str:key>/signals", send_signal, name="workflow-signals"),
    path("v1/signals/<str:source>", webhook, name="webhook"),
    *(URLResolver(RoutePattern(prefix), module) for each in installed() for prefix, module in each.api().items()),
    re_path(r"^v1(?:/|$)", not_found),
]

# Everything else is a 404 in the API's form, even targets without a leading slash: `OPTIONS *`, `GET http://...`.
INTAKE = URLResolver(
    RegexPattern("^/?"), [*_OF_BOTH, path("metrics", _metrics("intake_metrics")), re_path("", not_found)]
)
