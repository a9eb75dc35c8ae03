"""The definitions that run in the workers, what their services were asked and did, and how far a workflow has come."""

from __future__ import annotations

from collections import Counter

from tests.acceptance.outside import now
from tests.processes import Runworker, until
from tests.scenarios import services
from workflows.models import State, Workflow

ORDER_FULFILMENT = "tests.scenarios.order_fulfilment.ORDER_FULFILMENT"
LOAN_APPROVAL = "tests.scenarios.loan_approval.LOAN_APPROVAL"
INSURANCE_BATCH = "tests.scenarios.insurance_verification.INSURANCE_BATCH"
VERIFICATION = "tests.scenarios.insurance_verification.VERIFICATION"
TISSUE_ANALYSIS = "tests.scenarios.tissue_analysis.TISSUE_ANALYSIS"


def done(about: str | None = None) -> list[str]:
    """What the services have done, about somebody or at all, in the order they did."""
    return [entry["done"] for entry in services.entries() if "done" in entry and about in (None, entry["about"])]


def requests() -> Counter[str]:
    """How often the services were asked, by idempotency key."""
    return Counter(entry["key"] for entry in services.entries() if "asked" in entry)


def state(workflow: Workflow) -> State:
    return State(Workflow.objects.with_state().get(pk=workflow.pk).state)


def until_it(is_in: State, workflow: Workflow, worker: Runworker, *, seconds: float = 30) -> Workflow:
    """The row as it is when it has come to that state."""

    def found() -> bool:
        return state(workflow) == is_in

    def what() -> str:
        row = now(workflow)
        return f"{state(row)} {row.current_step} {row.waiting_for} {row.last_error_message}\n{worker.output}"

    until(found, seconds=seconds, what=what)
    return now(workflow)
