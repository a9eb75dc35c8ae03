"""Onboarding for the demo: an unclear visit is a question to a person at once, and one payload is poison.

The real list repeats an unclear call while the visits service honours its key, for 24 hours. Here the key expires at
once, so the next attempt cannot find out whether the visit was started.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from typing import Any

from onboarding.context import OnboardingContext
from onboarding.steps.profile import update_phone_number
from onboarding.workflow import ONBOARDING
from workflows.models import Workflow

# Seconds; the sandbox's calls are over within milliseconds.
SETTLE = 2.0
# A field that kills the worker which reads it, like a fault in a library.
POISON = "ends_its_worker"


@wraps(update_phone_number)
def update_phone_number_or_crash(*, workflow: Workflow, context: OnboardingContext) -> Mapping[str, Any] | None:
    if workflow.payload.get(POISON):
        os.kill(os.getpid(), signal.SIGSEGV)
    return update_phone_number(workflow=workflow, context=context)


CHANGES: dict[str, dict[str, Any]] = {
    "start_visit": {"key_ttl": timedelta(0), "settle": SETTLE},
    "update_phone_number": {"function": update_phone_number_or_crash},
}

DEMO = copy(ONBOARDING)
DEMO.steps = tuple(replace(step, **CHANGES.get(step.name, {})) for step in ONBOARDING.steps)
