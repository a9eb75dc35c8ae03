"""Checks that somebody is told of what waits."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import Info, Warning
from django.core.exceptions import ImproperlyConfigured

from workflows.checks import Messages
from workflows.features.outbox.destinations import OF_NOTICES, destinations


def check_notices(**kwargs: Any) -> Messages:
    """A destination takes each topic of OF_NOTICES, and mail has addresses that open the console."""
    try:
        known = destinations().values()
    except ImproperlyConfigured:  # `workflows.E015` says so
        return
    untold = [topic for topic in OF_NOTICES if not any(each.takes(topic) for each in known)]
    if untold:
        # Those who have named some have probably forgotten the others; to name none is a choice.
        level = Info if len(untold) == len(OF_NOTICES) else Warning
        yield level(
            f"Nobody is told, unless they look at the console: no destination takes {', '.join(untold)}.",
            hint='Name them in OUTBOX_DESTINATIONS, for example {"desk": {"email": "onramp@example.com", "topics": '
            '["task.*", "reversal.*", "lead.*", "team.*", "pause.*", "second_person.*"]}}: docs/notices.md.',
            id="workflows.W047",
        )
    if any(each.email for each in known) and not settings.CONSOLE_URL:
        yield Warning(
            "E-mail about tasks has no links, because CONSOLE_URL is empty.",
            hint="Set CONSOLE_URL to the address of the console, such as https://onramp.example.com",
            id="workflows.W048",
        )
