"""The demo's second type, which is no onboarding: a patient has moved, and their new address is saved."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from onboarding.context import OnboardingContext
from onboarding.payload import Address
from onboarding.samples import Kind, Sample, sample
from onboarding.services import accounts, messages, profiles
from onboarding.steps.account import exchange_token
from onboarding.wording import CALLER, CODES, STEPS
from onboarding.workflow import KEY_TTL, SEARCH_KEYS
from workflows.definition import Retention, Step, WorkflowDefinition
from workflows.effects import key_for
from workflows.errors import StepError
from workflows.models import Workflow
from workflows.wording import StepWords, Wording

# The code of the sandbox's fault: a service of ours refuses, and nobody explains it.
REFUSED = "refused"
# So many in a hundred patients have no account: they typed another e-mail address.
STRANGERS = 6


def find_account(*, workflow: Workflow, context: OnboardingContext) -> Mapping[str, Any] | None:
    account = accounts.find_by_email(workflow.payload["patient"]["email"])
    if account is None:
        raise StepError("There is no account with this e-mail address.", code="account_not_found")
    return {"patient_uuid": str(account.patient_uuid)}


def save_new_address(*, workflow: Workflow, context: OnboardingContext) -> Mapping[str, Any] | None:
    try:
        address = Address.model_validate(workflow.payload["address"])
    except ValidationError:
        raise StepError("The address has fields that are missing or wrong.", code="invalid_payload") from None
    key = key_for(workflow, "save_new_address")
    profiles.update_address(context.patient, address, token=context.token, idempotency_key=key)
    return {}


def confirm_address(*, workflow: Workflow, context: OnboardingContext) -> Mapping[str, Any] | None:
    messages.send_confirmation(context.patient, "body", idempotency_key=key_for(workflow, "confirm_address"))
    return {}


MOVING = WorkflowDefinition(
    name="address_change",
    steps=[
        find_account,
        exchange_token,
        Step(save_new_address, once=True, key_ttl=KEY_TTL, returns=()),
        Step(confirm_address, best_effort=True, once=True, key_ttl=KEY_TTL, returns=()),
    ],
    context_class=OnboardingContext,
    search_keys={"email": SEARCH_KEYS["email"]},
    expires_after=timedelta(days=14),
    public_fields=("address.state",),
    wording=Wording(
        title="Change of address",
        steps={
            "find_account": StepWords("Find the patient's account", "Account"),
            "exchange_token": STEPS["exchange_token"],
            "save_new_address": StepWords("Save the new address", "Profile", where=STEPS["update_address"].where),
            "confirm_address": StepWords("Confirm the new address", "Messages", where=STEPS["send_confirmation"].where),
        },
        codes=CODES,
        caller=CALLER[:1],
    ),
    retention=Retention(content=timedelta(days=90)),
)


def moves(number: int, seed: int) -> Iterator[Sample]:
    """So many patients who have moved. The same seed makes the same."""
    rng = random.Random(seed)  # noqa: S311
    for _ in range(number):
        patient = sample(Kind.EXISTING, rng.getrandbits(32))
        is_stranger = rng.randrange(100) < STRANGERS
        yield Sample(
            Kind.EXISTING,
            UUID(int=rng.getrandbits(128), version=4),
            {
                "patient": {name: patient.payload["patient"][name] for name in ("email", "first_name", "last_name")},
                "address": patient.payload["address"],
            },
            None if is_stranger else patient.account,
            "find_account" if is_stranger else "",
            "account_not_found" if is_stranger else "",
            () if is_stranger else (("profiles", "update_address"), ("messages", "send_confirmation")),
        )
