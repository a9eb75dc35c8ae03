"""The console's middleware, besides Django's."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, resolve

View = Callable[[HttpRequest], HttpResponse]

# Only our own scripts, styles, images and forms, and nothing inline: text that got into a page cannot act.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"


def content_security_policy(get_response: View) -> View:
    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return respond


def api_as_in_the_intake(get_response: View) -> View:
    """Answer the API and the health checks before any other middleware: the first of those is for browsers.

    Load balancers use an address instead of a name of ALLOWED_HOSTS, and plain http.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        try:
            match = resolve(request.path_info, "workflows.api.urls")
        except Resolver404:
            match = None
        if match is None:  # not in the `except`: otherwise every error of the console would be logged as a result of it
            return get_response(request)
        response: HttpResponse = match.func(request, *match.args, **match.kwargs)
        return response

    return respond
