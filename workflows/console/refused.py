"""REFUSED: what the console says in place of a page that it does not show, in whatever project it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.cache import add_never_cache_headers

from workflows.wording import of_person

FORBIDDEN = {
    "title": "You may not do this",
    "said": "Your account has no permission for this page, or for what you have just sent.",
    "help": "Nothing was done. If you need it for your work, ask the person who administers your account.",
}
NOT_FOUND = {
    "title": "There is nothing here",
    "said": "No page has this address. The number may be mistyped, or the link may have been cut short.",
    "help": of_person(
        "Look at the address again, or start from Home. A workflow is found by its number, or by the patient's e-mail "
        "address or phone number."
    ),
}


def in_words(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A view of the console that answers a refusal, and an address that is nobody's, with a page.

    So a project needs no handlers, whose pages its other visitors would see. With DEBUG, Django's page of an address
    that is nobody's comes first, as elsewhere.
    """

    @wraps(view)
    def told(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except PermissionDenied:
            return page(request, 403, FORBIDDEN)
        except Http404:
            if settings.DEBUG:
                raise
            return page(request, 404, NOT_FOUND)

    return told


def page(request: HttpRequest, status: int, words: dict[str, str]) -> HttpResponse:
    """The page with the user's header and bar."""
    context = {**admin.site.each_context(request), **words}
    return answer(status, render_to_string("admin/workflows/errors/page.html", context, request=request))


def answer(status: int, html: str) -> HttpResponse:
    response = HttpResponse(html, status=status)
    add_never_cache_headers(response)  # the address may work in a minute, or for another user
    return response
