"""The Content-Security-Policy of everything that is served to a browser."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

View = Callable[[HttpRequest], HttpResponse]

# Scripts, styles, images and forms of our own only, and nothing inline: text that got into a page cannot act.
POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"


def content_security_policy(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return respond
