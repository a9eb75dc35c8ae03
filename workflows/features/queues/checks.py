"""Checks whether refused submissions can be stored."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import Warning

from workflows.checks import Messages


def check_refused_submissions(**kwargs: Any) -> Messages:
    """Submissions that a queue's door refuses can be sealed."""
    if (settings.KAFKA_SUBMISSIONS or settings.SQS_QUEUE_URL) and not settings.DATA_KEYS:
        message = "Submissions that a queue's door refuses are not kept, because DATA_KEYS is not set."
        hint = "They are in the broker's dead letters, and only counted here. Set DATA_KEYS: manage.py datakeys --help."
        yield Warning(message, hint=hint, id="workflows.W027")
