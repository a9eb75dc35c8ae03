"""Onboarding with less patience, and small definitions of our own, all with the sandbox as their downstream."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from onboarding import workflow as onboarding
from workflows.definition import Retry, WorkflowDefinition

# A step that is ended as overdue is ended ten seconds past this. A call waits 2 s for its answer (see harness).
STEP_TIMEOUT = 5.0
# Longer than a call waits for its answer: by then the sandbox has performed it, or never will.
SETTLE = 3.0
KEY_TTL = timedelta(hours=24)

# The same steps as in production, in their order and with their lookups: only the times are shorter.
ONBOARDING = WorkflowDefinition(
    name="onboarding",
    steps=[replace(each, settle=SETTLE, timeout=STEP_TIMEOUT, retry=None) for each in onboarding.ONBOARDING.steps],
    context_class=onboarding.ONBOARDING.context_class,
    retry=Retry(base_delay=0.3, max_delay=2.0, max_attempts=100),
    linking_id=onboarding.ONBOARDING.linking_id,
    public_fields=onboarding.PUBLIC_FIELDS,
)
