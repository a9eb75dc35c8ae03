"""What a deployment may have forgotten, so that sign-ins would be counted wrongly."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Tags, Warning, register


def register_all() -> None:
    register(proxy_tells_the_address, Tags.security, deploy=True)


def proxy_tells_the_address(**kwargs: Any) -> list[CheckMessage]:
    """Behind a proxy all sign-ins come from one address, unless a header names it: one guesser would lock out all."""
    if not getattr(settings, "SECURE_PROXY_SSL_HEADER", None) or settings.CLIENT_ADDRESS_HEADER:
        return []
    return [
        Warning(
            "There is a proxy (SECURE_PROXY_SSL_HEADER), but CLIENT_ADDRESS_HEADER is not set: all sign-ins come from "
            "the proxy's address, and twenty failed ones lock out everybody.",
            hint="Name the header that your proxy writes the client's address to, such as X-Forwarded-For.",
            id="staff.W001",
        )
    ]
