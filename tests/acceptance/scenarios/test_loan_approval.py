"""Loans, in a real worker process: one person or two decide, or nobody does."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import now
from tests.acceptance.scenarios.watching import LOAN_APPROVAL, done, until_it
from tests.processes import Runworker, until
from tests.scenarios import services
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import ManualTask, Signal, State, Workflow

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def underwriters(transactional_db: None) -> dict[str, User]:
    team = Group.objects.create(name="underwriters")
    people = {name: User.objects.create_superuser(name) for name in ("ada", "ben")}
    team.user_set.add(*people.values())
    return people


def a_loan(amount: int) -> Workflow:
    return engine.submit({"customer": "C-7", "amount": amount}, workflow_type="loan_approval")


def asked(loan: Workflow, task_type: str, worker: Runworker) -> ManualTask:
    """The question, when it has been put."""
    tasks = ManualTask.objects.open().filter(workflow=loan, task_type=task_type)
    return until(tasks.first, what=lambda: f"{now(loan).last_error_message}\n{worker.output}")


def test_a_large_loan_needs_two_people(runworker: Start, underwriters: dict[str, User]) -> None:
    loan, worker = a_loan(50_000), runworker(LOAN_APPROVAL)
    terms = asked(loan, "loan_terms", worker)
    assert (terms.team, dict(terms.facts)["Requested"]) == ("underwriters", "$50,000")
    assert terms.due_at is not None
    assert terms.due_at < terms.expires_at
    answer = {"amount": 40_000, "conditions": "A guarantor."}
    operations.approve(terms.pk, user=underwriters["ada"], reason="Steady income.", answer=answer)

    confirmation = asked(loan, "loan_confirmation", worker)
    assert dict(confirmation.facts)["Amount"] == "$40,000"
    # Whether an operation says so or the table: nothing of it is stored.
    with pytest.raises((NotAllowed, IntegrityError)):
        operations.approve(confirmation.pk, user=underwriters["ada"])
    confirmation.refresh_from_db()
    assert (confirmation.state, Signal.objects.filter(name=confirmation.signal_name).exists()) == ("open", False)
    assert done() == []

    operations.approve(confirmation.pk, user=underwriters["ben"])
    paid = until_it(State.COMPLETE, loan, worker)
    assert (paid.context["amount"], paid.context["conditions"]) == (40_000, "A guarantor.")
    assert (paid.context["approved_by"], paid.context["confirmed_by"]) == ("ada", "ben")
    assert [entry["amount"] for entry in services.entries() if entry.get("done") == "pay_out"] == [40_000]
