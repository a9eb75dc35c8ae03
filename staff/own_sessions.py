"""The page of a user's own sessions: where they are signed in, since when, and a way to end the others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple, cast

from allauth.usersessions.models import UserSession
from django.contrib import admin, messages
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_http_methods

from staff.accounts import NO_ADDRESS
from staff.records import record
from staff.session_store import SessionStore
from staff.sessions import SEEN, over
from staff.single_sign_on import KEY

# The newest that are listed; "End all others" ends the rest, too.
LISTED = 50

# The first sign that is in the browser's text counts: Chrome's also has Safari's, and an iPhone's that of a Mac.
BROWSERS = {"Edg": "Edge", "OPR": "Opera", "FxiOS": "Firefox", "Firefox": "Firefox", "CriOS": "Chrome"}
BROWSERS |= {"Chrome": "Chrome", "Safari": "Safari"}
SYSTEMS = {"Windows": "Windows", "Android": "Android", "iPhone": "iPhone", "iPad": "iPad", "CrOS": "ChromeOS"}
SYSTEMS |= {"Mac OS": "macOS", "Linux": "Linux"}


class OwnSession(NamedTuple):
    pk: int
    browser: str
    agent: str
    address: str
    since: datetime
    seen: datetime
    is_this: bool


def browser_of(agent: str) -> str:
    """A browser's User-Agent in words: `Firefox on Windows`. For people only: a client can send any text."""
    browser, system = (
        next((name for sign, name in signs.items() if sign in agent), unknown)
        for signs, unknown in ((BROWSERS, "Another browser"), (SYSTEMS, "an unknown system"))
    )
    return f"{browser} on {system}"


@require_http_methods(["GET", "POST"])
def sessions_page(request: HttpRequest) -> HttpResponse:
    """List the user's sessions. A POST with `session` ends one of them, by its id, or all `others`."""
    if request.method == "POST":
        ended = _end(request, request.POST.get("session", ""))
        words = {0: "Nothing was ended: that session is over already.", 1: "The session was ended."}
        messages.info(request, words.get(ended, f"{ended} sessions were ended."))
        return HttpResponseRedirect(request.path)
    listed = sorted(_alive(request), key=lambda each: (each.is_this, each.seen), reverse=True)
    about = {"title": "Your sessions", "listed": listed, "by_provider": KEY in request.session}
    return render(request, "staff/own_sessions.html", {**admin.site.each_context(request), **about})


def _of_user(request: HttpRequest) -> QuerySet[UserSession]:
    return cast("QuerySet[UserSession]", UserSession.objects.filter(user=request.user))


def _alive(request: HttpRequest) -> Iterator[OwnSession]:
    """The sessions that are not over, and that no change of the password has ended."""
    mark = cast(User, request.user).get_session_auth_hash()
    for each in _of_user(request).order_by("-created_at")[:LISTED]:
        is_this = each.session_key == request.session.session_key
        session = request.session if is_this else SessionStore(each.session_key)
        if constant_time_compare(session.get(HASH_SESSION_KEY, ""), mark) and not over(session):
            address = "" if each.ip == NO_ADDRESS else each.ip
            seen = datetime.fromtimestamp(session.get(SEEN, each.created_at.timestamp()), UTC)
            yield OwnSession(
                each.pk, browser_of(each.user_agent), each.user_agent, address, each.created_at, seen, is_this
            )


@transaction.atomic
def _end(request: HttpRequest, which: str) -> int:
    """End other sessions of the user's, and record that. Returns how many."""
    others = _of_user(request).exclude(session_key=request.session.session_key)
    ended = list(others if which == "others" else others.filter(pk=which if which.isdecimal() else 0))
    for each in ended:
        each.end()
    if ended:
        record(cast(User, request.user), f"Other sessions of their own ended: {len(ended)}.")
    return len(ended)
