"""Checks of deployments for settings without which sign-ins are counted wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning


def proxy_tells_the_address(**kwargs: Any) -> Iterator[CheckMessage]:
    """Behind a proxy, without a header that names the client, all share an address: one guesser locks out everybody."""
    if getattr(settings, "SECURE_PROXY_SSL_HEADER", None) and not settings.CLIENT_ADDRESS_HEADER:
        yield Warning(
            "There is a proxy (SECURE_PROXY_SSL_HEADER), but CLIENT_ADDRESS_HEADER is not set: all sign-ins come from "
            "the proxy's address, and twenty failed ones lock out everybody.",
            hint="Name the header that your proxy writes the client's address to, such as X-Forwarded-For.",
            id="staff.W001",
        )
