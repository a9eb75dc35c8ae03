"""THE READER'S ZONE: the browser names it in a cookie, which the console's script writes.

Requests without the cookie, and everything outside the console, use UTC (docs/console.md#times).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

COOKIE = "zone"  # static/workflows/console.js writes it
# Names of UTC, and the name of the server's own zone.
AS_UTC = {"UTC", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu", "GMT", "localtime"}


def reader_zone(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A middleware: pages show, and forms read, times in the zone of the cookie."""

    def respond(request: HttpRequest) -> HttpResponse:
        with timezone.override(zone_of(request.COOKIES.get(COOKIE, ""))):
            return get_response(request)

    return respond


def zone_of(name: str) -> ZoneInfo:
    """The zone of this name; UTC if it is unknown."""
    return ZoneInfo(name) if name in _known() else ZoneInfo("UTC")


@cache
def _known() -> frozenset[str]:
    """The accepted names. A name becomes a path, so only those of the time zone database are opened."""
    return frozenset(available_timezones() - AS_UTC)
