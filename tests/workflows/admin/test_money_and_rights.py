"""Cancelling what has been charged, and charging again what was refunded, takes a permission of its own."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone

from onboarding.samples import Kind, sample
from tests.engine import another_connection
from tests.groups import make_groups
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.targets import chosen
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import Effect, Signal, Workflow
from workflows.operations.payments import may_have_been_charged
from workflows.operations.two_people import ASKED
from workflows.signals.store import CANCEL_SIGNAL, ENGINE, store

pytestmark = pytest.mark.django_db

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


def test_support_cancels_only_what_holds_no_money(sam: User) -> None:
    row = onboarding()
    charge = call(row, charge_id="ch_1")
    with pytest.raises(NotAllowed, match=REFUSED):
        cancel(row, sam)
    row.refresh_from_db()
    assert row.cancelled_at is None
    Effect.objects.filter(pk=charge.pk).update(state="undone")
    assert cancel(row, sam)


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


@pytest.mark.django_db(transaction=True)
def test_a_running_one_is_refused_all_the_same(sam: User) -> None:
    """A worker holds the row: the request would be stored."""
    row = onboarding()
    call(row, charge_id="ch_1")
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        with pytest.raises(NotAllowed, match=REFUSED):
            cancel(row, sam)
    assert not Signal.objects.exists()


def test_the_page_offers_no_cancel_and_says_why_nor_does_its_address_help(as_: Login, sam: User) -> None:
    row = onboarding()
    call(row, charge_id="ch_1")
    page = f"/admin/workflows/workflow/{row.pk}/change/"
    of_support = as_("support").get(page).content.decode()
    assert f"Cancel: {REFUSED}" in of_support
    assert f"/{row.pk}/cancel/" not in of_support
    of_lead = as_("support lead").get(page).content.decode()
    assert REFUSED not in of_lead
    assert f"/{row.pk}/cancel/" in of_lead
    support = as_("support")
    for answer in (
        support.get(f"/admin/workflows/workflow/{row.pk}/cancel/", follow=True),
        support.post(f"/admin/workflows/workflow/{row.pk}/cancel/", {"reason": "They want it."}, follow=True),
    ):
        assert REFUSED in answer.content.decode()
        assert b"Say why" not in answer.content
    row.refresh_from_db()
    assert row.status == "PENDING"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("before", "since", "told", "is_held"),
    [
        ("not_done", "done", "{} has been charged", False),
        ("not_done", "done", "{} has been charged", True),
        ("not_done", "intent", "{} may have been charged", True),
        ("unknown", "done", "{} has been charged", False),
        ("unknown", "not_done", "nothing is charged any more", True),
    ],
)
def test_what_is_charged_while_the_page_is_open_is_told_before_it_is_given_back(
    as_: Login, before: str, since: str, told: str, is_held: bool
) -> None:
    row, lead = onboarding(), as_("support lead")
    charge = call(row, state=before)
    page = f"/admin/workflows/workflow/{row.pk}/cancel/"
    form = hidden_in(lead.get(page).content.decode()) | {"reason": "They want it."}
    Effect.objects.filter(pk=charge.pk).update(state=since, result={"charge_id": "ch_1"} if since == "done" else {})
    with another_connection() as other, other.transaction():
        if is_held:
            other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        answer = lead.post(page, form, follow=True).content.decode()
    assert f"The money has changed since you looked: {told.format(amount_of(row))}." in answer
    row.refresh_from_db()
    assert (row.status, row.compensating, Signal.objects.exists()) == ("PENDING", False, False)
    lead.post(page, hidden_in(lead.get(page).content.decode()) | {"reason": "They want it."})
    row.refresh_from_db()
    assert row.cancelled_at, "as it is now"


def hidden_in(page: str) -> dict[str, list[str]]:
    """What the form of a page sends along unseen."""
    fields: dict[str, list[str]] = {}
    for name, value in re.findall(r'type="hidden" name="(\w+)" value="(\d+)"', page):
        fields.setdefault(name, []).append(value)
    return fields


# --- Retrying what was refunded ---------------------------------------------------------------------------------


REFUNDED = "Its charge was refunded or retracted, and a retry charges again: ask a support lead to retry it."


def refunded(**fields: Any) -> Workflow:
    row = onboarding(**{"status": "FAILED", "completed_at": timezone.now(), **fields})
    call(row, state="undone", charge_id="ch_1")
    return row


@pytest.mark.parametrize("in_bulk", [False, True])
def test_support_does_not_charge_again_what_was_refunded_and_a_lead_does(sam: User, in_bulk: bool) -> None:
    row = refunded()
    with pytest.raises(NotAllowed, match=REFUNDED):
        operations.retry(row.pk, user=sam, in_bulk=in_bulk)
    row.refresh_from_db()
    assert row.status == "FAILED"
    lead = member("support lead")
    second = lead if in_bulk else None  # the same person is none
    with pytest.raises(NotAllowed, match="you may confirm it alone from") if in_bulk else nullcontext():
        assert operations.retry(row.pk, user=lead, in_bulk=in_bulk, second=second) == ASKED


def test_nor_with_its_children(sam: User) -> None:
    """Those that were cancelled with it are retried with it, or none of them is."""
    ended = {"status": "FAILED", "completed_at": timezone.now(), "cancelled_at": timezone.now()}
    parent = rows.workflow(workflow_type="parcel", **ended)
    for name, make in [("a", onboarding), ("b", refunded)]:
        child = make(parent=parent, parent_wait="w", child_key=name, **ended)
        store(
            source=ENGINE,
            dedupe_key=name,
            name=CANCEL_SIGNAL,
            workflow_id=child.pk,
            payload={"by": "ann", "reason": ""},
        )
    with pytest.raises(NotAllowed, match=REFUNDED):
        operations.retry(parent.pk, user=sam)
    assert set(Workflow.objects.values_list("status", flat=True)) == {"FAILED"}
    Workflow.objects.filter(pk=parent.pk).update(cancelled_at=None)  # it failed by itself: no child is retried
    operations.retry(parent.pk, user=sam)


def test_a_child_that_failed_by_itself_is_not_retried_with_it(sam: User) -> None:
    parent = onboarding(status="FAILED", completed_at=timezone.now(), cancelled_at=timezone.now())
    refunded(parent=parent, parent_wait="w", child_key="a")
    operations.retry(parent.pk, user=sam)


@pytest.mark.parametrize("state", ["done", "kept"])
def test_support_retries_what_has_been_charged_again_and_stands(sam: User, state: str) -> None:
    row = refunded()
    call(row, state=state, generation=2, charge_id="ch_2")
    operations.retry(row.pk, user=sam)


def test_the_pages_of_a_retry_name_the_sum(as_: Login, sam: User) -> None:
    both = [refunded(), refunded()]
    lead, support = as_("support lead"), as_("support")
    of_one = lead.get(f"/admin/workflows/workflow/{both[0].pk}/retry/").content.decode()
    assert f"The card will be charged again: {amount_of(both[0])}." in of_one
    both.append(rows.failed())
    form = chosen(*both)
    of_all = lead.post("/admin/workflows/workflow/", form, follow=True).content.decode()
    assert f"{amount_of(*both[:2])} is charged again, for 2 of them" in of_all
    assert (
        f"2 are left alone: {REFUNDED}"
        in support.post("/admin/workflows/workflow/", form, follow=True).content.decode()
    )
    page = support.get(f"/admin/workflows/workflow/{both[0].pk}/change/").content.decode()
    assert (f"Retry: {REFUNDED}" in page, f"/{both[0].pk}/retry/" in page) == (True, False)


def amount_of(*some: Workflow) -> str:
    return f"${sum(row.payload['checkout']['amount_cents'] for row in some) / 100:.2f}"
