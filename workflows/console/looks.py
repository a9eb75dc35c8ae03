"""LOOKS: pages that look again by themselves, every few seconds (static/workflows/workflow.js).

A look says what it has seen, and costs one statement while that has not changed. Only if it has changed, the page is
made again, without its bar. What only time changes, such as an age, is seen with the next turn of the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from workflows.models.workflow import UNACKNOWLEDGED_SQL
from workflows.postgres.statements import fetch_row

# The headers of a look, and of what it has seen. A look is no activity of the user (`staff.sessions`).
BACKGROUND, SEEN = "X-Background", "X-Seen"

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


def seen_now(request: HttpRequest) -> str:
    """What a page is about to show, as a digest; empty for a page that does not look again."""
    sql = LOOKS.get(request.resolver_match.url_name or "") if request.resolver_match else None
    return sha256(repr(fetch_row(sql)).encode()).hexdigest()[:16] if sql else ""


def unless_seen(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap a page: a look that has seen all of it gets an empty answer."""

    @wraps(view)
    def look(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if BACKGROUND in request.headers and (seen := request.headers.get(SEEN)) and seen == seen_now(request):
            return HttpResponse(status=204)
        return view(request, *args, **kwargs)

    return look
