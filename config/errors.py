"""The pages for errors: what happened, whether anything was done, and where to go next.

They never show the exception, which may contain patient data; the log has it. With DEBUG, Django's pages come first.
"""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.csrf import requires_csrf_token

from workflows.console import refused

STALE_FORM = {
    "title": "Send it once more, please",
    "said": "This form was too old, or was open while you signed in again elsewhere.",
    "help": "Nothing was done. Go back, load the page again, and send it once more. If that does not help, allow "
    "cookies for this site.",
}
BAD_REQUEST = {
    "title": "This could not be read",
    "said": "What your browser sent makes no sense here.",
    "help": "Nothing was done. Go back, load the page again, and try once more.",
}
BROKEN = {
    "title": "Something is wrong on our side",
    "said": "This page could not be shown.",
    "help": "Wait a minute, then load it again. If you had sent a form, look first whether it was done: the history of "
    "the workflow says so. If it stays like this, tell an engineer the time and the address of this page.",
}


@requires_csrf_token
def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, 403, refused.FORBIDDEN)


@requires_csrf_token
def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _page(request, 404, refused.NOT_FOUND)


@requires_csrf_token
def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return _page(request, 403, STALE_FORM)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    return _bare(400, BAD_REQUEST)


def server_error(request: HttpRequest) -> HttpResponse:
    return _bare(500, BROKEN)


def _page(request: HttpRequest, status: int, words: dict[str, str]) -> HttpResponse:
    """The page with the user's header and bar."""
    if not hasattr(request, "user"):  # refused before the user was known
        return _bare(status, words)
    return refused.page(request, status, words)


def _bare(status: int, words: dict[str, str]) -> HttpResponse:
    """The page without any query, because the database may be what is broken."""
    return refused.answer(
        status, render_to_string("errors/bare.html", {**words, "site_header": admin.site.site_header})
    )
