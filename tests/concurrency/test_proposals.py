"""Two at once at what a program proposes, on two real connections: it is done once, and by one of them."""

from __future__ import annotations

from functools import partial

import pytest
from django.contrib.auth.models import User

from tests.concurrency.rivals import Rivals
from tests.workflows import rows
from tests.workflows.features.operator_api.people import person
from workflows import operations
from workflows.features.operator_api import proposals
from workflows.models import Event, Proposal, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 10


@pytest.fixture
def people() -> list[User]:
    """The one behind the key, and two who may approve."""
    return [person(name, "support lead") for name in ("carla", "dan", "eve")]


def kinds(row: Workflow) -> list[str]:
    return list(Event.objects.filter(workflow=row.pk).order_by("id").values_list("kind", flat=True))


def test_of_two_who_approve_it_one_does_and_the_other_is_told(rivals: Rivals, people: list[User]) -> None:
    proposer, *others = people
    for _ in range(ROUNDS):
        row = rows.failed()
        number = rows.proposal(proposer, row).pk
        results = rivals.race(*(partial(proposals.approve, number, user=each, seen=[number]) for each in others))
        winner = Proposal.objects.select_related("decided_by").get(pk=number).decided_by
        assert winner in others
        loser = results[1 - others.index(winner)]
        assert str(loser) == f"{winner} has decided it already: it is approved.", results
        assert kinds(row) == ["retried"]


@pytest.mark.parametrize("other", ["refused", "retried by its button"])
def test_an_approval_beside_something_else_is_one_of_the_two(rivals: Rivals, people: list[User], other: str) -> None:
    proposer, second, third = people
    for _ in range(ROUNDS):
        row = rows.failed()
        number = rows.proposal(proposer, row).pk
        beside = {
            "refused": partial(proposals.close, number, user=third, seen=[number], reason="No."),
            "retried by its button": partial(operations.retry, row.pk, user=third, reason="By hand."),
        }[other]
        results = rivals.race(partial(proposals.approve, number, user=second, seen=[number]), beside)
        assert sum(isinstance(each, Exception) for each in results) == 1, results
        approved = not isinstance(results[0], Exception)
        expected = {"refused": "proposal_refused", "retried by its button": "retried"}[other]
        assert kinds(row) == ["retried" if approved else expected], results
        assert (Proposal.objects.get(pk=number).state == "approved") == approved
