"""Cancelling what has been charged takes a permission of its own."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from onboarding.samples import Kind, sample
from tests.engine import another_connection
from tests.groups import make_groups
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import Effect, Signal, Workflow
from workflows.operations.payments import may_have_been_charged

pytestmark = pytest.mark.django_db(transaction=True)

CHARGE = "execute_checkout"
REFUSED = "It has been charged, or may have been: ask a support lead to cancel it."


@pytest.fixture
def sam() -> User:
    return member("support")


def member(group: str) -> User:
    make_groups()
    user = User.objects.create_user(group.replace(" ", "_"), is_staff=True)
    user.groups.add(Group.objects.get(name=group))
    return User.objects.get(pk=user.pk)


def onboarding(**fields: Any) -> Workflow:
    return rows.workflow(workflow_type="onboarding", payload=sample(Kind.NET_NEW).payload, **fields)


def call(row: Workflow, step: str = CHARGE, state: str = "done", generation: int = 1, **result: Any) -> Effect:
    return Effect.objects.create(
        workflow=row,
        step=step,
        state=state,
        generation=generation,
        attempt=1,
        result=result,
        idempotency_key=f"{row.pk}:{generation}",
    )


def cancel(row: Workflow, user: User) -> str:
    return operations.cancel(row.pk, user=user, reason="They have asked for it.")


@pytest.mark.parametrize("state", ["done", "kept"])
def test_support_does_not_cancel_what_has_been_charged(sam: User, state: str) -> None:
    row = onboarding()
    call(row, state=state, charge_id="ch_1")
    with pytest.raises(NotAllowed, match=REFUSED):
        cancel(row, sam)
    row.refresh_from_db()
    assert row.cancelled_at is None


@pytest.mark.parametrize("state", ["intent", "unknown"])
def test_nor_what_may_have_been_charged(sam: User, state: str) -> None:
    row = onboarding()
    call(row, state=state)
    with pytest.raises(NotAllowed, match=REFUSED):
        cancel(row, sam)


@pytest.mark.parametrize(
    ("step", "state", "result"),
    [
        (CHARGE, "undone", {"charge_id": "ch_1"}),
        (CHARGE, "not_done", {}),
        (CHARGE, "skipped", {}),
        (CHARGE, "done", {"charge_id": None}),  # a coupon for all of it
        (CHARGE, "done", {"charge_id": ""}),
        ("create_account", "done", {"charge_id": "ch_1"}),
        ("create_account", "unknown", {}),
    ],
)
def test_support_cancels_what_has_charged_nothing(sam: User, step: str, state: str, result: dict[str, Any]) -> None:
    row = onboarding()
    call(row, step, state, **result)
    assert cancel(row, sam)


def test_a_refund_is_no_charge(sam: User) -> None:
    row = onboarding()
    call(row, state="undone", charge_id="ch_1")
    Effect.objects.create(
        workflow=row, step=CHARGE, state="done", undo=True, attempt=1, result={"charge_id": "ch_1"}, idempotency_key="u"
    )
    assert not may_have_been_charged(row.pk)


def test_a_second_charge_after_a_refund_counts(sam: User) -> None:
    row = onboarding()
    call(row, state="undone", charge_id="ch_1")
    call(row, generation=2, charge_id="ch_2")
    assert may_have_been_charged(row.pk)


@pytest.mark.parametrize("group", ["support lead", "engineer"])
def test_a_support_lead_and_an_engineer_cancel_it(group: str) -> None:
    row = onboarding()
    call(row, charge_id="ch_1")
    assert cancel(row, member(group))


def test_what_is_cancelled_with_it_counts(sam: User) -> None:
    """The children that are under way, and theirs."""
    root = onboarding()
    middle = rows.workflow(workflow_type="parcel", parent=root, parent_wait="w", child_key="a")
    leaf = onboarding(parent=middle, parent_wait="w", child_key="b")
    assert not may_have_been_charged(root.pk)
    call(leaf, charge_id="ch_1")
    assert may_have_been_charged(root.pk)
    Workflow.objects.filter(pk=leaf.pk).update(status="COMPLETE")
    assert not may_have_been_charged(root.pk), "what is complete stays as it is"


@pytest.mark.parametrize("state", ["done", "intent"])
def test_of_a_type_that_nobody_knows_every_call_may_be_a_charge(sam: User, state: str) -> None:
    row = rows.workflow(workflow_type="of-another-release")
    assert not may_have_been_charged(row.pk)
    call(row, "anything", state)
    assert may_have_been_charged(row.pk)


def test_a_running_one_is_refused_all_the_same(sam: User) -> None:
    """A worker holds the row: the request would be stored."""
    row = onboarding()
    call(row, charge_id="ch_1")
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        with pytest.raises(NotAllowed, match=REFUSED):
            cancel(row, sam)
    assert not Signal.objects.exists()


def test_the_page_offers_no_cancel_and_says_why(as_: Login, sam: User) -> None:
    row = onboarding()
    call(row, charge_id="ch_1")
    page = f"/admin/workflows/workflow/{row.pk}/change/"
    of_support = as_("support").get(page).content.decode()
    assert f"Cancel: {REFUSED}" in of_support
    assert f"/{row.pk}/cancel/" not in of_support
    of_lead = as_("support lead").get(page).content.decode()
    assert REFUSED not in of_lead
    assert f"/{row.pk}/cancel/" in of_lead


def test_nor_does_its_address_help(as_: Login, sam: User) -> None:
    row = onboarding()
    call(row, charge_id="ch_1")
    support = as_("support")
    for answer in (
        support.get(f"/admin/workflows/workflow/{row.pk}/cancel/", follow=True),
        support.post(f"/admin/workflows/workflow/{row.pk}/cancel/", {"reason": "They want it."}, follow=True),
    ):
        assert REFUSED in answer.content.decode()
        assert b"Say why" not in answer.content
    row.refresh_from_db()
    assert row.status == "PENDING"
