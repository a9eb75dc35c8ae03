"""Every URL of the console, as its resolver has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.urls import URLPattern, reverse

CATCH_ALL = "(?P<url>.*)$"


def every_url() -> dict[str, str]:
    """The routes of the console, by the name of each; by the route itself for one that has no name."""
    return {pattern.name or route: route for route, pattern in _patterns(admin.site.get_urls())}


def address(url: str, *args: Any) -> str:
    """The address of a URL by its name, or by its route where it has none."""
    if url == CATCH_ALL:
        return "/admin/nothing-of-ours/"
    if "<" not in url:
        return reverse(f"admin:{url}", args=args)
    before, _, rest = url.partition("<")
    return f"/admin/{before}{args[0]}{rest.partition('>')[2]}"


def _patterns(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for each in patterns:
        route = f"{prefix}{each.pattern}"
        if isinstance(each, URLPattern):
            yield route, each
        else:
            yield from _patterns(each.url_patterns, route)
