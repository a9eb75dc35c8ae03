"""System checks of the onboarding app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error

from onboarding.workflow import ONBOARDING
from workflows.checks import wordless_steps


def check_services(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Every service needs an http(s) address where workers run: without one, a worker would fail its workflows."""
    missing = [name for name, url in settings.SERVICES.items() if not _is_http(url)]
    if not missing:
        return []
    return [
        Error(
            f"No usable address for: {', '.join(missing)}.",
            hint="Set SERVICES_URL to the http(s) root of all services, or one each: ACCOUNTS_URL, TOKENS_URL, ...",
            id="onboarding.E001",
        )
    ]


def check_timeout(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    if settings.SERVICES_TIMEOUT > 0:
        return []
    return [Error("SERVICES_TIMEOUT must be above 0.", hint="Seconds, for example 10.", id="onboarding.E002")]


def check_wording(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Every step of onboarding needs words for staff."""
    if not (lacking := wordless_steps(ONBOARDING)):
        return []
    hint = "Say StepWords(title, phase) of each in onboarding/wording.py."
    return [Error(f"Onboarding has no words for {', '.join(lacking)}.", hint=hint, id="onboarding.E003")]


def _is_http(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)
