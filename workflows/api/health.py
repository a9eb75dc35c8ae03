"""`/healthz`: the process answers. `/readyz`: it can do its work."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows.api.problems import RETRY_AFTER_SECONDS, Problem, api
from workflows.postgres.deadlines import query_in_time
from workflows.postgres.missing_migrations import missing_migrations


@api("GET")
def healthz(request: HttpRequest) -> HttpResponse:
    """The process is alive. The database is not queried, because restarting this process would not bring it back."""
    return JsonResponse({"status": "ok"})


@api("GET")
def readyz(request: HttpRequest) -> HttpResponse:
    """The process is ready: the database answers within seconds, and has the tables of this release."""
    if query_in_time(missing_migrations, seconds=2.0):
        raise Problem(
            503,
            "migrations_missing",
            "The database has not been migrated to this release.",
            Retry_After=str(RETRY_AFTER_SECONDS),
        )
    return JsonResponse({"status": "ready"})
