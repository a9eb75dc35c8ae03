"""A batch of insurance policies: each is verified by a workflow of its own, and what cannot be, a person settles."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from tests.scenarios import services
from workflows.definition import Retry, Step, WorkflowDefinition
from workflows.effects import KnownEffect, key_for
from workflows.models import Workflow
from workflows.waits import Child, require_approval, wait_for_children

# --- One policy ---------------------------------------------------------------------------------------


class VerificationContext(BaseModel):
    verification_id: str | None = None


def verify(*, workflow: Workflow, context: VerificationContext) -> dict[str, str]:
    key = key_for(workflow, "verify")
    return {"verification_id": services.verify_policy(workflow.payload["policy"], idempotency_key=key)}


def find_verification(
    *, workflow: Workflow, context: VerificationContext, effect: KnownEffect
) -> dict[str, str] | None:
    verification = services.find(effect.idempotency_key)
    return {"verification_id": verification} if verification else None


# A queue of its own: how many insurers' answers are waited for at once is how many workers it has.
VERIFICATION = WorkflowDefinition(
    name="insurance_verification",
    steps=[Step(verify, once=True, lookup=find_verification, timeout=3, settle=3, returns=("verification_id",))],
    context_class=VerificationContext,
    retry=Retry(base_delay=0.5, max_delay=300),
    queue="verification",
)

# --- The batch ----------------------------------------------------------------------------------------


class Triage(BaseModel):
    """How a person settles what could not be verified."""

    settle_as: Literal["self_pay", "turned_away"]


class BatchContext(BaseModel):
    verified: int = 0  # verify_all
    unverified: dict[str, str] = {}  # verify_all: policy -> why
    settle_as: str = ""  # triage
    triaged_by: str = ""  # triage


def verify_all(*, workflow: Workflow, context: BatchContext) -> dict[str, object]:
    children = [Child(VERIFICATION.name, {"policy": policy}, key=policy) for policy in workflow.payload["policies"]]
    outcomes = wait_for_children(workflow, "verifications", children, timeout=timedelta(days=1))
    return {
        "verified": sum(outcome.completed for outcome in outcomes),
        "unverified": {outcome.key: outcome.error_code for outcome in outcomes if not outcome.completed},
    }


def triage(*, workflow: Workflow, context: BatchContext) -> dict[str, str] | None:
    if not context.unverified:
        return None
    approval = require_approval(
        workflow,
        "triage",
        question=f"{len(context.unverified)} policies could not be verified. How are these patients settled?",
        facts=context.unverified,
        task_type="triage",
        form=Triage,
        timeout=timedelta(days=7),
    )
    return {"settle_as": approval.answer.settle_as, "triaged_by": approval.decided_by}


def settle(*, workflow: Workflow, context: BatchContext) -> dict[str, str] | None:
    if not context.unverified:
        return None
    policies = ",".join(sorted(context.unverified))
    services.request(context.settle_as, policies, idempotency_key=key_for(workflow, "settle"))
    return {}


INSURANCE_BATCH = WorkflowDefinition(
    name="insurance_batch",
    steps=[verify_all, triage, Step(settle, once=True, key_ttl=timedelta(days=1), returns=())],
    context_class=BatchContext,
)
