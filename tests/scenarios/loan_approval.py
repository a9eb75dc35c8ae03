"""A loan: one person sets the terms, above a limit another one has to agree, then it is paid out."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, Field

from tests.scenarios import services
from workflows.definition import Step, WorkflowDefinition
from workflows.effects import KnownEffect, key_for
from workflows.models import Workflow
from workflows.waits import require_approval

# Up to this amount one person may decide alone.
ONE_APPROVER = 10_000
# An answer is due the same working day; after a full day the application is over.
DUE, TIMEOUT = timedelta(hours=4), timedelta(hours=24)


class Terms(BaseModel):
    """What the first approver fills in."""

    amount: int = Field(gt=0, description="In whole dollars; never more than was asked for is paid out.")
    conditions: str = Field("", description="What the customer has to fulfil first, if anything.")


class LoanContext(BaseModel):
    approved_by: str | None = None  # set_terms
    amount: int = 0  # set_terms
    conditions: str = ""  # set_terms
    confirmed_by: str | None = None  # confirm_terms
    payout_id: str | None = None  # pay_out


def set_terms(*, workflow: Workflow, context: LoanContext) -> dict[str, str | int]:
    requested = workflow.payload["amount"]
    approval = require_approval(
        workflow,
        "terms",
        question="On which terms may this loan be given?",
        facts={"Customer": workflow.payload["customer"], "Requested": f"${requested:,}"},
        task_type="loan_terms",
        form=Terms,  # a yes fills this in
        team="underwriters",
        due=DUE,
        timeout=TIMEOUT,
    )
    terms = approval.answer
    return {
        "approved_by": approval.decided_by,
        "amount": min(terms.amount, requested),
        "conditions": terms.conditions,
    }


def confirm_terms(*, workflow: Workflow, context: LoanContext) -> dict[str, str] | None:
    if context.amount <= ONE_APPROVER:
        return None
    assert context.approved_by
    approval = require_approval(
        workflow,
        "second_approval",
        question="May this loan be given on these terms?",
        facts={
            "Customer": workflow.payload["customer"],
            "Amount": f"${context.amount:,}",
            "Conditions": context.conditions or "none",
            "Terms by": context.approved_by,
        },
        task_type="loan_confirmation",
        team="underwriters",
        requested_by=context.approved_by,
        four_eyes=True,  # the user who set the terms may not confirm them
        due=DUE,
        timeout=TIMEOUT,
    )
    return {"confirmed_by": approval.decided_by}


def pay_out(*, workflow: Workflow, context: LoanContext) -> dict[str, str]:
    key = key_for(workflow, "pay_out")
    customer = workflow.payload["customer"]
    return {"payout_id": services.request("pay_out", customer, idempotency_key=key, amount=context.amount)}


def find_payout(*, workflow: Workflow, context: LoanContext, effect: KnownEffect) -> dict[str, str] | None:
    payout = services.find(effect.idempotency_key)
    return {"payout_id": payout} if payout else None


LOAN_APPROVAL = WorkflowDefinition(
    name="loan_approval",
    steps=[set_terms, confirm_terms, Step(pay_out, once=True, lookup=find_payout, returns=("payout_id",))],
    context_class=LoanContext,
)
