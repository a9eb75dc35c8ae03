"""System checks of the onboarding app."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from onboarding.wording import CODES
from onboarding.workflow import ONBOARDING
from workflows.checks import wordless_steps

# The package whose code is searched for the errors that its steps raise.
RAISES = Path(__file__).parent
ERRORS = ("StepError", "RetryableStepError", "UnknownOutcome")


def check_services(**kwargs: Any) -> Iterator[CheckMessage]:
    """Every service needs an http(s) address where workers run: without one, a worker would fail its workflows."""
    if missing := [name for name, url in settings.SERVICES.items() if not _is_http(url)]:
        hint = (
            "Set SERVICES_URL to the http(s) root of all services, or one each: SERVICE_ADDRESSES=payments=https://..."
        )
        yield Error(f"No usable address for: {', '.join(missing)}.", hint=hint, id="onboarding.E001")


def check_timeout(**kwargs: Any) -> Iterator[CheckMessage]:
    if settings.SERVICES_TIMEOUT <= 0:
        yield Error("SERVICES_TIMEOUT must be above 0.", hint="Seconds, for example 10.", id="onboarding.E002")


def check_wording(**kwargs: Any) -> Iterator[CheckMessage]:
    """Every step of onboarding needs words for staff."""
    if lacking := wordless_steps(ONBOARDING):
        hint = "Say StepWords(title, phase) of each in onboarding/wording.py."
        yield Error(f"Onboarding has no words for {', '.join(lacking)}.", hint=hint, id="onboarding.E003")


def check_codes(**kwargs: Any) -> Iterator[CheckMessage]:
    """Every code that onboarding raises needs words: unexplained failures may set off the brake."""
    if lacking := sorted({code for path in RAISES.rglob("*.py") for code in _raised(path)} - set(CODES)):
        hint = "Say CodeWords(staff, patient) of each in onboarding/wording.py; ours=True if it may be our own mistake."
        yield Warning(f"Onboarding raises codes without words: {', '.join(lacking)}.", hint=hint, id="onboarding.W001")


def _raised(path: Path) -> Iterator[str]:
    """The error codes that a module raises, as they are written in its source."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ERRORS:
            yield from (
                str(word.value.value)
                for word in call.keywords
                if word.arg == "code" and isinstance(word.value, ast.Constant)
            )


def _is_http(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)
