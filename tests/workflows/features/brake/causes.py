"""Causes as the tests of the brake, and of the pages, have them."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from tests.workflows.features.outages.services import SECOND
from workflows.models import Service
from workflows.models.failure import Cause


def open_cause(step: str = "enroll_in_program", code: str = "TypeError", **fields: Any) -> Service:
    """A cause whose brake five failures of onboarding have put on, in release r7."""
    now = timezone.now()
    name = Cause("onboarding", step, code).name
    given = {"workflow_type": "onboarding", "step": step, "code": code, "releases": ["r7"], "opened_at": now - SECOND}
    service, _ = Service.objects.update_or_create(
        name=name, defaults={**given, "retry_at": now + 60 * SECOND, "failed_at": now - SECOND, **fields}
    )
    return service
