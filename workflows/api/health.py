"""`/healthz`: the process answers. `/readyz`: it can do its work."""

from __future__ import annotations

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse

from workflows.api.problems import RETRY_AFTER_SECONDS, Problem, api
from workflows.engine.sessions import IS_READ_ONLY
from workflows.postgres.deadlines import query_in_time
from workflows.postgres.missing_migrations import missing_migrations
from workflows.postgres.statements import fetch_row


@api("GET")
def healthz(request: HttpRequest) -> HttpResponse:
    """The process is alive. The database is not queried, because restarting this process would not bring it back."""
    return JsonResponse({"status": "ok"})


@api("GET")
def readyz(request: HttpRequest) -> HttpResponse:
    """The process is ready: the database answers within seconds, takes writes, and has the tables of this release.

    It commits nothing. So it is ready, too, while each COMMIT waits for a standby: a load balancer would take all
    processes away, because they share the database, and clients would get its 503 in place of ours.
    """
    if query_in_time(_look, seconds=2.0):
        raise Problem(
            503,
            "migrations_missing",
            "The database has not been migrated to this release.",
            Retry_After=str(RETRY_AFTER_SECONDS),
        )
    return JsonResponse({"status": "ready"})


def _look() -> frozenset[tuple[str, str]]:
    """The missing migrations. Raises if this session is on a read-only server: a new one may reach the primary."""
    if fetch_row(IS_READ_ONLY) == (True,):
        raise OperationalError("the server is read-only")
    return missing_migrations()
