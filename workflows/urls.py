"""The API and the health of a process, under the root of either WSGI entry."""

from django.urls import URLPattern, path, re_path

from workflows.views.health import healthz, readyz
from workflows.views.problems import not_found
from workflows.views.submissions import submission, submit

urlpatterns: list[URLPattern] = [
    path("v1/submissions", submit, name="submissions"),
    path("v1/submissions/<str:key>", submission, name="submission"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    re_path(r"^v1(?:/|$)", not_found),
]
