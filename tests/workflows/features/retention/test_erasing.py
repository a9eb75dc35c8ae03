"""What was sent under an address is erased when two people say so, all of it or nothing."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.db import IntegrityError, transaction
from django.test import Client

from onboarding.workflow import ONBOARDING
from tests.dumps import dump
from tests.engine import another_connection
from tests.workflows import rows
from tests.workflows.features.retention.test_holds import of_a_patient, place
from tests.workflows.features.retention.test_purge import CANARY, is_emptied, with_content
from workflows.errors import NotAllowed
from workflows.features.retention import content, erasing
from workflows.models import BusinessKeyHash, Effect, Erasure, Event, OriginalPayload, SearchKeyHash, Signal, Workflow
from workflows.search import rows as search_rows
from workflows.search import search_keys

pytestmark = pytest.mark.django_db(transaction=True)

ADDRESS = f"{CANARY}@example.com"


@pytest.fixture
def bob(transactional_db: None) -> User:
    return User.objects.create_superuser("bob")


def ask(user: User, email: str = ADDRESS, reason: str = "Ticket 812.") -> Erasure:
    return erasing.ask(user=user, email=email, reason=reason)


def young() -> Workflow:
    row = of_a_patient()
    Workflow.objects.filter(pk=row.pk).update(completed_at=row.created_at, linking_id=CANARY)
    row.refresh_from_db()
    return row


def test_all_of_the_address_is_emptied_and_the_record_says_by_whom(ada: User, bob: User) -> None:
    row = with_content(young())
    child = rows.complete(parent=row, parent_wait="all", child_key=CANARY, payload={"n": CANARY})
    other = rows.complete(payload={"n": "other"})
    SearchKeyHash.objects.create(hash=b"of a field that was corrected", workflow=row, key_id=1)
    business = BusinessKeyHash.objects.create(hash=b"of its business key", workflow=row, key_id=1, role="holder")
    Signal.objects.create(source="shop", dedupe_key="later", name="paid", linking_id=CANARY, payload={"n": CANARY})
    asked = ask(ada)
    assert asked.workflows == [row.pk, child.pk]
    assert bytes(asked.hash) in search_keys.hashes_of_address(ADDRESS)
    assert not is_emptied(row)
    erasing.approve(asked.pk, user=bob)
    assert CANARY not in dump()
    assert not SearchKeyHash.objects.filter(workflow=row).exists()
    assert BusinessKeyHash.objects.get(workflow=row) == business
    assert [is_emptied(each) for each in (row, child, other)] == [True, True, False]
    done = Erasure.objects.get()
    assert (done.state, done.asked_by, done.decided_by) == ("done", ada, bob)
    with pytest.raises(NotAllowed, match="decided it already"):
        erasing.approve(asked.pk, user=bob)
    with pytest.raises(NotAllowed, match="deleted already"):
        ask(ada)


def test_nobody_approves_their_own_nor_without_the_permission(ada: User, bob: User) -> None:
    row, asked, eve = young(), ask(ada), User.objects.create_user("eve", is_staff=True)
    with pytest.raises(NotAllowed, match="another user"):
        erasing.approve(asked.pk, user=ada)
    ada.email = bob.email = "ada@example.com"
    ada.save()
    with pytest.raises(NotAllowed, match="another person"):
        erasing.approve(asked.pk, user=bob)
    bob.email = ""
    for denied in (lambda: erasing.approve(asked.pk, user=eve), lambda: ask(eve), lambda: erasing.refuse(1, user=eve)):
        with pytest.raises(PermissionDenied):
            denied()
    with pytest.raises(IntegrityError):
        Erasure.objects.update(state="done", decided_by=ada)
    User.objects.filter(pk=ada.pk).update(is_active=False)
    with pytest.raises(NotAllowed, match="ask again"):
        erasing.approve(asked.pk, user=bob)
    assert not is_emptied(row)


def unclear(row: Workflow, ada: User) -> None:
    Effect.objects.create(workflow=row, step="charge", state="unknown", attempt=1, idempotency_key="k")


def pending(row: Workflow, ada: User) -> None:
    Workflow.objects.filter(pk=row.pk).update(status="PENDING", completed_at=None)


def held(row: Workflow, ada: User) -> None:
    place(ada, row.pk)


@pytest.mark.parametrize(("prevent", "why"), [(unclear, "unclear"), (pending, "cancel it"), (held, "legal hold")])
def test_nothing_is_erased_while_one_of_them_has_to_stay(prevent: Any, why: str, ada: User, bob: User) -> None:
    row, other = young(), young()
    asked = ask(ada)
    prevent(row, ada)
    for again in (lambda: erasing.approve(asked.pk, user=bob), lambda: ask(ada)):
        with pytest.raises(NotAllowed, match=why):
            again()
    assert (is_emptied(row), is_emptied(other), Erasure.objects.get().state) == (False, False, "asked")


def test_what_somebody_has_in_hand_is_not_erased_in_part(ada: User, bob: User) -> None:
    row, other = young(), young()
    asked = ask(ada)
    Erasure.objects.update(workflows=[*asked.workflows, 10**9])  # it was emptied, and deleted by its age, since
    with another_connection() as holder, holder.transaction():
        holder.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        with pytest.raises(NotAllowed, match="in hand"):
            erasing.approve(asked.pk, user=bob)
    assert not is_emptied(other)
    erasing.approve(asked.pk, user=bob)
    assert is_emptied(other)


def test_what_was_emptied_meanwhile_is_not_emptied_again(ada: User, bob: User) -> None:
    row, other = young(), young()
    asked = ask(ada)
    with transaction.atomic():
        content.empty([row.pk])
    emptied_at = Workflow.objects.get(pk=row.pk).emptied_at
    erasing.approve(asked.pk, user=bob)
    assert (Workflow.objects.get(pk=row.pk).emptied_at, is_emptied(other)) == (emptied_at, True)


def test_the_reason_names_no_address_and_an_unknown_one_finds_nothing(ada: User) -> None:
    with pytest.raises(NotAllowed, match="name nobody"):
        ask(ada, reason=f"{ADDRESS} has asked.")
    for nobody, why in (("ann@example.com", "Nothing of this person"), ("no address", "That is not an e-mail address")):
        with pytest.raises(NotAllowed, match=why):
            ask(ada, nobody)


def test_it_is_found_by_a_workflow_too_and_all_of_its_address_with_it(ada: User) -> None:
    row, other, alone = young(), young(), rows.complete()
    assert erasing.ask(user=ada, reason="Ticket 812.", workflow_id=row.pk).workflows == [row.pk, other.pk]
    without = erasing.ask(user=ada, reason="Ticket 812.", workflow_id=alone.pk)
    assert (without.workflows, bytes(without.hash)) == ([alone.pk], b"")
    with pytest.raises(NotAllowed, match="no such workflow"):
        erasing.ask(user=ada, reason="Ticket 812.", workflow_id=0)


def test_by_a_mistyped_address_only_what_was_first_sent_is_erased(ada: User, bob: User, client: Client) -> None:
    """The address may be somebody else's; what is erased by the right one is all of it."""
    row, own = young(), rows.complete(workflow_type="onboarding", payload={"patient": {"email": "typo@example.com"}})
    OriginalPayload.objects.create(workflow=row, payload={"patient": {"email": "typo@example.com"}, "n": "first-sent"})
    for each, payload in ((row, {"patient": {"email": "typo@example.com"}}), (own, own.payload)):
        search_rows.add(each.pk, ONBOARDING, payload)
    child = rows.complete(workflow_type="onboarding", parent=own, parent_wait="all", child_key="1", payload=row.payload)
    OriginalPayload.objects.create(workflow=child, payload={"patient": {"email": "another@example.com"}})
    asked = ask(ada, "typo@example.com")
    assert asked.workflows == [row.pk, own.pk, child.pk]
    client.force_login(bob)
    html = client.get(f"/admin/workflows/erasure/{asked.pk}/approve/").content.decode()
    assert "only what was first sent is deleted" in html
    erasing.approve(asked.pk, user=bob)
    assert [is_emptied(each) for each in (row, own, child)] == [False, True, True], "a child goes with its parent"
    assert "first-sent" not in dump()
    with pytest.raises(NotAllowed, match="Nothing of this person is here"):
        ask(ada, "typo@example.com")
    OriginalPayload.objects.create(workflow=row, payload=row.payload)  # as when another field was corrected
    erasing.approve(ask(ada).pk, user=bob)
    assert is_emptied(row)


def test_with_another_secret_nobody_knows_whose_address_it_was(ada: User, bob: User, settings: Any) -> None:
    """Else the whole of a patient would be erased whose address somebody has mistyped."""
    settings.SEARCH_KEYS = ["old"]
    row = young()
    OriginalPayload.objects.create(workflow=row, payload={"patient": {"email": "typo@example.com"}})
    search_rows.add(row.pk, ONBOARDING, {"patient": {"email": "typo@example.com"}})
    asked = ask(ada, "typo@example.com")
    settings.SEARCH_KEYS = ["new"]
    with pytest.raises(NotAllowed, match="The secret of the search keys has changed since: refuse it, and ask again"):
        erasing.approve(asked.pk, user=bob)
    assert not is_emptied(row)
    OriginalPayload.objects.update(workflow=(without := rows.complete()), payload={})
    for each in (asked, erasing.ask(user=ada, reason="Ticket 812.", workflow_id=without.pk)):
        erasing.approve(each.pk, user=bob)
    assert [is_emptied(each) for each in (row, without)] == [True, True], "not corrected; not found by an address"


def test_the_parent_of_what_has_the_address_is_found_and_nothing_that_was_emptied_before(ada: User) -> None:
    child = young()
    parent, emptied = rows.complete(), rows.complete(emptied_at=child.created_at)
    Workflow.objects.filter(pk=child.pk).update(parent=parent, parent_wait="all", child_key="1")
    Workflow.objects.filter(pk=emptied.pk).update(parent=parent, parent_wait="all", child_key="2")
    assert ask(ada).workflows == [child.pk, parent.pk]


def test_an_address_of_very_many_is_not_a_single_person(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    young(), young()
    monkeypatch.setattr(erasing, "MOST", 2)
    assert len(ask(ada).workflows) == 2
    monkeypatch.setattr(erasing, "MOST", 1)
    with pytest.raises(NotAllowed, match="not a single person"):
        ask(ada)


def test_the_database_asks_for_an_erasure_that_was_approved(ada: User) -> None:
    row = with_content(young())
    asked = ask(ada)
    Workflow.objects.filter(pk=row.pk).update(emptied_at=row.created_at)
    assert asked.workflows == [row.pk]
    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.filter(workflow=row).update(detail={})


def test_the_command_asks_and_says_what_it_has_found(ada: User) -> None:
    row = young()
    asked = ["erase", "ask", "--email", ADDRESS, "--reason", "Ticket 812.", "--actor", "ada", "--json"]
    call_command("workflow", *asked, stdout=(out := StringIO()))
    assert json.loads(out.getvalue()) == {"erasure": Erasure.objects.get().pk, "workflows": str(row.pk)}
