"""Onboarding with less patience, and small definitions of our own, all with the sandbox as their downstream."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from onboarding import workflow as onboarding
from onboarding.services import messages, payments
from workflows.definition import Retry, Step, WorkflowDefinition, WorkflowStep
from workflows.effects import KnownEffect, key_for
from workflows.errors import RetryableStepError, ServiceUnavailable, StepError
from workflows.models import Attempt, Effect, Workflow
from workflows.waits import wait_for_signal
from workflows.wording import CodeWords

# A step that is ended as overdue is ended ten seconds past this. A call waits 2 s for its answer (see harness).
STEP_TIMEOUT = 5.0
# Longer than a call waits for its answer: by then the sandbox has performed it, or never will.
SETTLE = 3.0
KEY_TTL = timedelta(hours=24)
LEASE = 2  # seconds

# The same steps as in production, in their order and with their lookups: only the times are shorter.
RETRY = Retry(base_delay=0.3, max_delay=2.0, max_attempts=100)
# With no more attempts than in production, nor more patience with a service.
AS_OFTEN = Retry(base_delay=0.3, max_delay=4.0)
SOON = Retry(base_delay=1.0, max_delay=2.0)
STEPS = [
    replace(each, settle=SETTLE, timeout=STEP_TIMEOUT, retry=None, follow_up=SOON if each.follow_up else None)
    for each in onboarding.ONBOARDING.steps
]
# As in production, but for the longest delay: ten attempts take eighteen seconds.
IMPATIENT = Retry(base_delay=2.0, max_delay=2.0)


# With words for what fails here on purpose, workflow by workflow: without any it would count as our mistake.
ON_PURPOSE = {code: CodeWords("On purpose.", "On purpose.") for code in ("program_closed", "told_to_fail")}
WORDING = replace(onboarding.WORDING, codes={**onboarding.WORDING.codes, **ON_PURPOSE})


def _onboarding(
    retry: Retry, *last: WorkflowStep, steps: Sequence[Step] = STEPS, **broken: WorkflowStep
) -> WorkflowDefinition:
    """`broken` are functions that take the place of those of the steps of these names."""
    return WorkflowDefinition(
        name="onboarding",
        steps=[*(replace(each, function=broken.get(each.name, each.function)) for each in steps), *last],
        context_class=onboarding.ONBOARDING.context_class,
        retry=retry,
        linking_id=onboarding.ONBOARDING.linking_id,
        search_keys=onboarding.SEARCH_KEYS,
        business_key=onboarding.ONBOARDING.business_key,
        public_fields=onboarding.PUBLIC_FIELDS,
        wording=WORDING,
    )


def close_the_program(*, workflow: Workflow, context: Any) -> None:
    raise StepError("The program is closed.", code="program_closed")


ONBOARDING, OUTAGE = _onboarding(AS_OFTEN), _onboarding(IMPATIENT)
# All that can be undone has happened when it fails for good.
CLOSED, CLOSED_IN_AN_OUTAGE = _onboarding(RETRY, close_the_program), _onboarding(IMPATIENT, close_the_program)


# --- Releases with a mistake in one step ------------------------------------------------------------------------------


def raises(*, workflow: Workflow, context: Any) -> None:
    raise TypeError("a mistake of ours")


def exits(*, workflow: Workflow, context: Any) -> None:
    os._exit(3)


def raises_after_the_charge(*, workflow: Workflow, context: Any) -> None:
    onboarding.execute_checkout(workflow=workflow, context=context)
    raise TypeError("a mistake of ours, after the call")


def refunds_nothing(*, workflow: Workflow, context: Any, effect: KnownEffect) -> None:
    raise TypeError("a mistake of ours")


RAISES, EXITS = _onboarding(AS_OFTEN, start_visit=raises), _onboarding(AS_OFTEN, start_visit=exits)
RAISES_AFTER = _onboarding(AS_OFTEN, execute_checkout=raises_after_the_charge)
NO_REFUNDS = _onboarding(
    RETRY, close_the_program, steps=[replace(each, undo=each.undo and refunds_nothing) for each in STEPS]
)


class Context(BaseModel):
    card_id: str | None = None
    charge_id: str | None = None


def attach(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    key = key_for(workflow, "attach")
    return {"card_id": payments.attach_card(_patient(workflow), f"tok_{workflow.key}", idempotency_key=key)}


def charge(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    assert context.card_id
    key = key_for(workflow, "charge")
    charged = payments.charge(
        _patient(workflow), context.card_id, amount_cents=100, currency="usd", idempotency_key=key
    )
    return {"charge_id": charged}


def find_charge(*, workflow: Workflow, context: Context, effect: KnownEffect) -> dict[str, Any] | None:
    found = payments.find_charge(effect.idempotency_key)
    return {"charge_id": found} if found else None


def refund(*, workflow: Workflow, context: Context, effect: KnownEffect) -> dict[str, Any]:
    assert context.charge_id
    return {"refund_id": payments.refund(context.charge_id, idempotency_key=effect.undo_key)}


def confirm(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    messages.send_confirmation(_patient(workflow), "body", idempotency_key=key_for(workflow, "confirm"))
    return {}


def _patient(workflow: Workflow) -> UUID:
    return UUID(workflow.payload["patient"])


ATTACH = Step(attach, once=True, key_ttl=KEY_TTL, timeout=STEP_TIMEOUT, returns=("card_id",))
CHARGE = Step(charge, once=True, lookup=find_charge, settle=SETTLE, timeout=STEP_TIMEOUT, returns=("charge_id",))
CONFIRM = Step(confirm, once=True, key_ttl=KEY_TTL, timeout=STEP_TIMEOUT, returns=())

PAID = WorkflowDefinition(name="paid", steps=[ATTACH, CHARGE, CONFIRM], context_class=Context, retry=RETRY)


def await_go(*, workflow: Workflow, context: Context) -> None:
    wait_for_signal(workflow, "go", "go", timeout=timedelta(hours=1))


# What has paid, and can be cancelled and run again for as long as the test likes.
PAID_AND_WAITS = WorkflowDefinition(
    name="paid_and_waits", steps=[ATTACH, CHARGE, await_go, CONFIRM], context_class=Context, retry=RETRY
)

# What nobody but a person can tell: there is no lookup, and the service honours its keys for no time that we know.
ASKED = WorkflowDefinition(
    name="asked",
    steps=[ATTACH, Step(charge, once=True, settle=SETTLE, timeout=SETTLE, returns=("charge_id",)), CONFIRM],
    context_class=Context,
    retry=AS_OFTEN,
)


# --- Money: a charge whose doubts are settled in each of the ways, which can be given back or not ---------------------

MONEY = "money"  # a queue of its own, for its services forget their keys, and those of the others must not
# What the steps state, and what the sandbox does: longer, by more than a request takes to arrive on a busy machine.
HONOURED = timedelta(seconds=3)
FORGOTTEN_AFTER = 10.0
UNLIMITED = 100  # attempts


def collect(*, workflow: Workflow, context: Context) -> dict[str, Any] | None:
    """Charge the card that the payload names, with as much patience as it says.

    From the attempt `waived_from` on there is nothing to be paid any more; else it does not ask the database anything.
    """
    waived_from = workflow.payload.get("waived_from")
    if waived_from and Attempt.objects.filter(workflow=workflow).count() >= waived_from:
        return None
    card, key = workflow.payload["card"], key_for(workflow, "collect")
    try:
        charged = payments.charge(_patient(workflow), card, amount_cents=100, currency="usd", idempotency_key=key)
    except RetryableStepError as error:
        error.max_attempts = patience = workflow.payload["patience"]
        if patience < UNLIMITED:
            _count_as_no_outage(error)
        raise
    if workflow.payload.get("fails_at") == "collect":
        raise ValueError("The charge is made, and its answer makes no sense.")
    return {"charge_id": charged}


def give_back(*, workflow: Workflow, context: Context, effect: KnownEffect) -> dict[str, Any]:
    """A person is asked about it after three failures, whatever their reason."""
    try:
        return refund(workflow=workflow, context=context, effect=effect)
    except RetryableStepError as error:
        _count_as_no_outage(error)
        raise


def _count_as_no_outage(error: RetryableStepError) -> None:
    """There would be more patience for one; but a call that was not made for an open circuit is left as it is."""
    if not isinstance(error, ServiceUnavailable):
        vars(error).pop("unavailable_service", None)


def ship(*, workflow: Workflow, context: Context) -> None:
    _fail_there(workflow, "ship")


def close_the_books(*, workflow: Workflow, context: Context) -> None:
    _fail_there(workflow, "close_the_books")


def _fail_there(workflow: Workflow, step: str) -> None:
    if workflow.payload.get("fails_at") == step:
        raise StepError("It fails here, for good.", code="told_to_fail")


def await_the_late_result(*, workflow: Workflow, context: Context) -> None:
    """From the second attempt on: until the first one, which has lost the workflow, has told how its call ended."""
    give_up_at = time.monotonic() + 15.0
    while Attempt.objects.filter(workflow=workflow).count() > 1 and time.monotonic() < give_up_at:
        if Effect.objects.filter(workflow=workflow, step="collect", state="done").exists():
            return
        time.sleep(0.02)


def _paying(
    name: str, *before: Step | WorkflowStep, timeout: float = SETTLE, base_delay: float = 0.5, **how: Any
) -> WorkflowDefinition:
    """A call may not take longer than it takes to be settled: nobody is to be told that it did not happen before."""
    return WorkflowDefinition(
        name=name,
        queue=MONEY,
        steps=[
            *before,
            Step(collect, once=True, settle=SETTLE, timeout=timeout, returns=("charge_id",), **how),
            ship,
            Step(confirm, once=True, key_ttl=HONOURED, settle=SETTLE, timeout=SETTLE, returns=()),
            close_the_books,
        ],
        context_class=Context,
        retry=Retry(base_delay=base_delay, max_delay=max(base_delay, 4.0), max_attempts=100),
    )


BY_KEY = _paying("by_key", key_ttl=HONOURED, undo=give_back)
BY_LOOKUP = _paying("by_lookup", lookup=find_charge, undo=give_back)
BY_PERSON = _paying("by_person", undo=give_back)
# The same, and what is paid stays paid.
FINAL_BY_KEY = _paying("final_by_key", key_ttl=HONOURED)
FINAL_BY_LOOKUP = _paying("final_by_lookup", lookup=find_charge)
FINAL_BY_PERSON = _paying("final_by_person")

# For tests that go from attempt to attempt: none comes by itself, and the key is over when the test says so.
STEP_BY_STEP = _paying("step_by_step", base_delay=3600, key_ttl=KEY_TTL, undo=give_back)
IN_TURNS = _paying("in_turns", Step(await_the_late_result, timeout=20), timeout=STEP_TIMEOUT, key_ttl=KEY_TTL)
