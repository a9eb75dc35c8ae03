"""`/metrics`: the figures behind Home's first sentence, for Prometheus.

All are read from the database on request. Every process gives the same answer, so Prometheus asks one.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from workflows.api.problems import Problem, api
from workflows.health import bounded, series
from workflows.health.metrics import families
from workflows.intake.metrics import exposition
from workflows.postgres.deadlines import query_in_time

# A scrape, every 15 seconds, counts up to this; the console's pages, on demand, count ten times as far. The counters
# give the whole number under way: what came less what finished.
COUNT_LIMIT = 1_000


@api("GET")
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics in Prometheus' text format; without DEBUG only for clients that send METRICS_TOKEN."""
    _require_token(request)
    with bounded.counting_to(COUNT_LIMIT):
        text = query_in_time(lambda: series.text(families()))
    return HttpResponse(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)


@api("GET")
def intake_metrics(request: HttpRequest) -> HttpResponse:
    """The intake's metrics, with the same token: the answers of this host's processes."""
    _require_token(request)
    return HttpResponse(exposition(), content_type=CONTENT_TYPE_PLAIN_0_0_4)


def _require_token(request: HttpRequest) -> None:
    if not settings.METRICS_TOKEN:
        if settings.DEBUG:
            return
        raise Problem(403, "metrics_closed", "Set METRICS_TOKEN for this process, and send it as a bearer token.")
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not constant_time_compare(token.strip(), settings.METRICS_TOKEN):
        raise Problem(
            401,
            "metrics_token_invalid",
            "Send METRICS_TOKEN: Authorization: Bearer <token>.",
            WWW_Authenticate="Bearer",
        )
