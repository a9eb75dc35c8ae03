"""LOOKS: pages that look again by themselves, every few seconds (static/workflows/workflow.js).

A look says what it has seen, and costs one statement while that has not changed. Only if it has changed, the page is
made again, without its bar, for this user: nothing is kept for others. What only time changes, such as an age, is seen
with the next turn of the clock.

Where something changes all the time, each page is made again every EVERY seconds, and looks between cost no statement:
fifty people who watch a hundred failures a second cost no more than two who reload it. After a calm, two looks in a row
get their news at once. The page itself carries until when it is paid for (a leaky bucket), so that no process has to
know of others.

Home's figures are the same for all, so looks share them: see `figures`. What they lead to, and what is for a person, is
made for each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from threading import Lock
from time import monotonic, time
from typing import Any, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from workflows.health import counts
from workflows.health.counts import Counts
from workflows.models.workflow import UNACKNOWLEDGED_SQL
from workflows.postgres.statements import fetch_row

# The headers of a look, and of what it has seen. A look is no activity of the user (`staff.sessions`).
BACKGROUND, SEEN = "X-Background", "X-Seen"
# Seconds that each page with news is paid for, so that a page of 60 ms costs 2 ms a second.
EVERY = 30
# Seconds for which looks share Home's figures.
SHARED = 15
# Seconds for which a look waits for the figures that another one reads. If the database is silent, the first waits as
# long as it takes, and each after it would begin to wait when the one before has given up.
WAITS = 2.0
_SHOWS = "_shows"  # of a request: see `seen`

_TURN = "floor(extract(epoch FROM statement_timestamp()) / {seconds})"
_FOR_PEOPLE = f"""
    SELECT {_TURN.format(seconds=60)}, (SELECT max(id) FROM workflows_manualtask),
           (SELECT max(at) FROM workflows_event WHERE NOT (actor = '')),
           (SELECT max(completed_at) FROM workflows_workflow WHERE {UNACKNOWLEDGED_SQL})"""  # noqa: S608 (ours)


def _table(name: str, columns: str) -> str:
    """SQL for what stands in a small table."""
    told = f"SELECT md5(string_agg(ROW({columns})::text, ' ' ORDER BY {columns.partition(',')[0]}))"
    return f"SELECT {_TURN.format(seconds=15)}, ({told} FROM workflows_{name})"  # noqa: S608 (ours)


# By the URL's name: a statement whose row changes when the page does.
LOOKS = {
    "index": _FOR_PEOPLE,
    "needs_a_person": _FOR_PEOPLE,
    "workflows_manualtask_changelist": _FOR_PEOPLE,
    "workflows_service_changelist": _table("service", "name, since, failed_at, opened_at, closed_at, retry_at"),
    "workflows_pace_changelist": _table("pace", "key, held_until, per_second, at_once"),
    "workflows_workerprocess_changelist": _table("workerprocess", "id, workflow_id, attempt, step, stopped_at"),
}


def seen(request: HttpRequest) -> str:
    """What a page shows, and until when its looks are paid for; empty for a page that does not look again.

    What it shows is read before the page, by `unless_seen`: what changes meanwhile is then news for the next look.
    """
    if not (shows := getattr(request, _SHOWS, "")):
        return ""
    now, (_, paid) = int(time()), _said(request)
    return f"{shows}.{max(now, paid) + EVERY if BACKGROUND in request.headers else now}"


def unless_seen(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap a page: a look that has seen all of it, or that has had news too often, gets an empty answer."""

    @wraps(view)
    def look(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        (showed, paid), is_look = _said(request), BACKGROUND in request.headers
        if is_look and paid > time() + EVERY:
            return HttpResponse(status=204)
        shows = _read(request)
        if is_look and shows and shows == showed:
            return HttpResponse(status=204)
        setattr(request, _SHOWS, shows)
        return view(request, *args, **kwargs)

    return look


class _Shared(NamedTuple):
    """Figures, until when looks share them, and what a page with them shows."""

    read: Counts
    until: float
    shows: str


_shared: list[_Shared] = []  # one at most
_reading = Lock()  # fifty looks that come at once wait for the first


def figures(request: HttpRequest) -> Counts:
    """Home's figures. Those of a page that a person loads are read for it.

    A look with the same news as another gets the same figures. Where something changes all the time it also gets those
    of a moment ago: then its page has seen no more than that, and what came since is news for its next look.
    """
    if BACKGROUND not in request.headers:
        return counts.read()
    shows, has_had_news = getattr(request, _SHOWS, ""), _said(request)[1] > time()
    is_first = _reading.acquire(timeout=WAITS)
    try:
        if not (_shared and _shared[0].until > monotonic() and (has_had_news or _shared[0].shows == shows)):
            _shared[:] = [_Shared(counts.read(), monotonic() + SHARED, shows)]
        found = _shared[0]
    finally:
        if is_first:
            _reading.release()
    setattr(request, _SHOWS, found.shows)
    return found.read


def _read(request: HttpRequest) -> str:
    """What a page is about to show, as a digest."""
    sql = LOOKS.get(request.resolver_match.url_name or "") if request.resolver_match else None
    return sha256(repr(fetch_row(sql)).encode()).hexdigest()[:16] if sql else ""


def _said(request: HttpRequest) -> tuple[str, int]:
    """What a look has seen, and until when it is paid for; 0 if a clock has been set back, or nobody has written it."""
    shows, _, paid = request.headers.get(SEEN, "").partition(".")
    until = int(paid) if paid.isascii() and paid.isdecimal() and len(paid) < 12 else 0
    return shows, until if until <= time() + 2 * EVERY else 0
