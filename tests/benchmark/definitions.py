"""The definitions that the benchmark's workers run."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from onboarding.workflow import SEARCH_KEYS, SECRET_FIELDS
from tests.benchmark import STEPS
from workflows.definition import Step, WorkflowDefinition
from workflows.models import Attempt, Workflow
from workflows.waits import wait_for_signal


class Context(BaseModel):
    reference: str | None = None


def call_nobody(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    """A call that takes no time: what is left is the engine."""
    return {"reference": "made-up"}


def do_nothing(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    return {}


def hold_at_first(*, workflow: Workflow, context: Context) -> None:
    """Hold the row until the worker is killed. The one that takes it over is done at once."""
    if Attempt.objects.filter(workflow_id=workflow.pk).count() == 1:
        time.sleep(25)


def await_paid(*, workflow: Workflow, context: Context) -> None:
    wait_for_signal(workflow, "payment", "paid", timeout=timedelta(days=1))


def _defined(name: str, *steps: Step, **more: Any) -> WorkflowDefinition:
    return WorkflowDefinition(name=name, context_class=Context, steps=[*steps], **more)


NAMES = [f"step_{number}" for number in range(1, STEPS + 1)]
# Any key_ttl: without one the checks would say, rightly, that nobody could tell whether a call has happened.
NO_OPS = _defined(
    "no_ops",
    *(Step(call_nobody, once=True, name=name, key_ttl=timedelta(days=1), returns=("reference",)) for name in NAMES),
)
SECRETS = _defined("secrets", *NO_OPS.steps, secret_fields=SECRET_FIELDS)
# Nothing is recorded of these but the attempt, and what is decided.
PLAIN = _defined("plain", *(Step(do_nothing, name=name) for name in NAMES))
ONE = _defined("one", Step(do_nothing))
HELD = _defined("held", Step(hold_at_first))
AWAITS = _defined("awaits", Step(await_paid))
# What a submission costs on its way in: the last as onboarding's, with an e-mail address, a phone number and secrets.
ENTERED = _defined("entered", Step(call_nobody))
ENTERED_WITH_KEYS = _defined("entered_with_keys", Step(call_nobody), search_keys=SEARCH_KEYS)
ENTERED_WITH_SECRETS = _defined(
    "entered_with_secrets", Step(call_nobody), search_keys=SEARCH_KEYS, secret_fields=SECRET_FIELDS
)
