"""KAFKA_OPTIONS: librdkafka's properties, for consumers and producers."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def kafka_options(*ours: str) -> dict[str, Any]:
    """The properties in KAFKA_OPTIONS, none of which is one of `ours`.

    Raises ImproperlyConfigured. The message does not quote their values: they hold passwords.
    """
    try:
        given = json.loads(settings.KAFKA_OPTIONS or "{}")
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(isinstance(value, str | int | float) for value in given.values()):
        raise ImproperlyConfigured(
            'KAFKA_OPTIONS is not a JSON object of librdkafka\'s properties: {"name": "value", ...}.'
        )
    if barred := sorted({"bootstrap.servers", "group.id", *ours} & given.keys()):
        raise ImproperlyConfigured(
            f"KAFKA_OPTIONS may not set {', '.join(barred)}: that is KAFKA_BROKERS, KAFKA_GROUP, or ours."
        )
    return given
