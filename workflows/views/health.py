"""`/healthz`: the process answers. `/readyz`: it can do its work."""

from __future__ import annotations

from functools import cache

from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows.bounded import ask
from workflows.views.problems import RETRY_AFTER_SECONDS, Problem, api


@api("GET")
def healthz(request: HttpRequest) -> HttpResponse:
    """Alive. Asks nobody: a database that is away is no reason to restart this process."""
    return JsonResponse({"status": "ok"})


@api("GET")
def readyz(request: HttpRequest) -> HttpResponse:
    """Ready for requests: the database answers within seconds, and has the tables of this release."""
    if not ask(_migrations_are_applied, seconds=2.0):
        raise Problem(
            503,
            "migrations_missing",
            "The database has not been migrated to this release.",
            Retry_After=str(RETRY_AFTER_SECONDS),
        )
    return JsonResponse({"status": "ready"})


def _migrations_are_applied() -> bool:
    recorder = MigrationRecorder(connection)
    applied = set(recorder.migration_qs.values_list("app", "name")) if recorder.has_table() else set()
    return _last_migrations() <= applied


@cache
def _last_migrations() -> frozenset[tuple[str, str]]:
    """The last migration of each app, from the files of this release: they do not change while it runs."""
    return frozenset(MigrationLoader(None).graph.leaf_nodes())
