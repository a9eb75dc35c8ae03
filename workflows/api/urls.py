"""The API and the health of a process, under the root of the WSGI entries: the console has all of it, the intake
only `INTAKE`.
"""

from django.urls import URLPattern, path, re_path

from workflows.api.health import healthz, readyz
from workflows.api.metrics import metrics
from workflows.api.problems import not_found
from workflows.api.signals import send_signal, webhook
from workflows.api.submissions import submission, submit
from workflows.api.workflows import start_workflow, workflow

INTAKE: list[URLPattern] = [
    path("v1/submissions", submit, name="submissions"),
    path("v1/submissions/<str:key>", submission, name="submission"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]

urlpatterns: list[URLPattern] = [
    *INTAKE,
    path("metrics", metrics, name="metrics"),
    path("v1/workflows", start_workflow, name="workflows"),
    path("v1/workflows/<str:key>", workflow, name="workflow"),
    path("v1/workflows/<str:key>/signals", send_signal, name="workflow-signals"),
    path("v1/signals/<str:source>", webhook, name="webhook"),
    re_path(r"^v1(?:/|$)", not_found),
]
