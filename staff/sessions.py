"""How long a session lasts: 15 idle minutes, 8 hours at most. The page warns two minutes before (session.js)."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.signals import user_logged_in
from django.contrib.auth.views import redirect_to_login
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

# The header of requests that a page makes by itself, such as a refresh. They are no activity.
BACKGROUND = "X-Background"

# Pages that are sent before a user is signed in.
FOR_NOBODY = ("admin:login", "mfa_authenticate", "second_factor_enrol", "single_sign_on_end")

BEGAN, SEEN = "session_began", "session_seen"
# When the user last confirmed their identity: see `step_up`.
CONFIRMED = "session_confirmed"

# The share of the idle time by which `SEEN` may be late (5 s of 15 minutes): a burst of requests is one UPDATE.
LAG = 1 / 180

NOTHING_DONE = "Nothing was done: fill in what is empty now, and send it again."


def count_from_sign_in() -> None:
    user_logged_in.connect(_begin, dispatch_uid="staff.sessions")


def _begin(sender: Any, request: HttpRequest, **kwargs: Any) -> None:
    request.session[BEGAN] = request.session[SEEN] = request.session[CONFIRMED] = time()


def limit_sessions(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """End an expired session before a request does anything. Any other request counts as activity."""

    def respond(request: HttpRequest) -> HttpResponse:
        if not request.user.is_authenticated:
            if request.method == "POST" and _needs_session(request):
                return sign_in_again(request, "You are not signed in.")
            return get_response(request)
        if why := over(request.session):
            logout(request)
            return sign_in_again(request, why)
        if not is_background(request):
            _note_activity(request.session)
        return get_response(request)

    return respond


def left(session: SessionBase) -> dict[str, int]:
    """The seconds that the session has left: without activity, and at most."""
    now = time()
    return {
        "idle": round(session.get(SEEN, now) + settings.SESSION_IDLE_SECONDS - now),
        "most": round(session.get(BEGAN, now) + settings.SESSION_COOKIE_AGE - now),
    }


@never_cache
@require_http_methods(["GET", "POST"])
def session_view(request: HttpRequest) -> HttpResponse:
    """How long the session has left; a POST is activity (see `limit_sessions`)."""
    if not request.user.is_authenticated:
        return HttpResponse(status=401)
    return JsonResponse(left(request.session))


def over(session: SessionBase) -> str:
    """Why the session is over, as a sentence; empty while it is not."""
    remaining = left(session)
    if remaining["most"] <= 0:
        return f"You were signed out {settings.SESSION_COOKIE_AGE // 3600} hours after you had signed in."
    if remaining["idle"] <= 0:
        return f"You were signed out after {settings.SESSION_IDLE_SECONDS // 60} minutes without activity."
    return ""


def _note_activity(session: SessionBase) -> None:
    now = time()
    session.setdefault(BEGAN, now)  # sessions of the previous release have neither
    if now - session.get(SEEN, 0) >= settings.SESSION_IDLE_SECONDS * LAG:
        session[SEEN] = now


def _needs_session(request: HttpRequest) -> bool:
    return request.path.startswith(reverse("admin:index")) and request.path not in map(reverse, FOR_NOBODY)


def is_background(request: HttpRequest) -> bool:
    return BACKGROUND in request.headers or (request.method == "GET" and request.path == reverse("admin:session"))


def sign_in_again(request: HttpRequest, why: str) -> HttpResponse:
    """Redirect to the sign-in page, and from there back to the page that the user was on."""
    if is_background(request) or request.path == reverse("admin:session"):
        messages.warning(request, f"{why} Sign in to go on.")
        return HttpResponse(status=401)
    sent = request.method == "POST"
    messages.warning(request, f"{why} {NOTHING_DONE if sent else 'Sign in to go on.'}")
    back = page_of(request) if sent else request.get_full_path()
    return redirect_to_login(back, reverse("admin:login"))


def page_of(request: HttpRequest) -> str:
    """The page of the form: the form's own address may have no page."""
    home = reverse("admin:index")
    try:
        page = urlsplit(request.headers.get("Referer", ""))
    except ValueError:
        return home
    if page.netloc == request.get_host() and page.path != reverse("admin:login"):
        return f"{page.path}?{page.query}" if page.query else page.path
    return home
