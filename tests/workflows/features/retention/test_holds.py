"""What a legal hold is on stays, whatever its age."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.utils import timezone
from pytest_django import Settings

from onboarding.workflow import ONBOARDING
from tests.engine import another_connection, until_blocked, with_its_connections
from tests.postgres import without_triggers
from tests.workflows.features.retention.test_purge import CANARY, empty_old, is_emptied, old
from workflows.errors import NotAllowed
from workflows.features.retention import erasing, holds
from workflows.models import Hold, SearchKeyHash, Workflow
from workflows.operations import guards
from workflows.search import rows as search_rows
from workflows.search import search_keys

pytestmark = pytest.mark.django_db(transaction=True)

LATER = timedelta(days=30)


def of_a_patient() -> Workflow:
    row = old(workflow_type="onboarding")
    search_rows.add(row.pk, ONBOARDING, row.payload)
    return row


def place(user: User, row_id: int, *, lasts: timedelta = LATER, of_person: bool = False) -> list[Hold]:
    until = timezone.now() + lasts
    return holds.place(row_id, user=user, reason="A court asks.", until=until, of_person=of_person)


def test_a_workflow_is_held_until_the_hold_is_lifted(ada: User) -> None:
    row, other = old(), old()
    (hold,) = place(ada, row.pk)
    assert empty_old() == 1
    assert (is_emptied(row), is_emptied(other)) == (False, True)
    holds.lift(hold.pk, user=ada, reason="The court has decided.")
    assert empty_old() == 1
    with pytest.raises(NotAllowed, match="has ended"):
        holds.lift(hold.pk, user=ada, reason="Once more.")
    with pytest.raises(NotAllowed, match="deleted already"):
        place(ada, row.pk)


def test_all_of_an_address_are_held_and_only_its_hash_is_kept(ada: User) -> None:
    place(ada, of_a_patient().pk, of_person=True)
    assert (empty_old(), is_emptied(of_a_patient())) == (0, False)
    assert empty_old() == 0
    assert CANARY not in str(Hold.objects.values())
    Hold.objects.update(until=timezone.now())
    assert empty_old() == 2


def test_it_waits_for_what_is_being_deleted_just_now(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "LOCK_TIMEOUT", "100ms")
    row = old()
    (hold,) = place(ada, row.pk)
    later = timezone.now() + 2 * LATER
    with another_connection() as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock_shared(%s)", [holds._LOCK])
        for again in (
            lambda: place(ada, row.pk),
            lambda: holds.extend(hold.pk, user=ada, reason="It goes on.", until=later),
        ):
            with pytest.raises(NotAllowed, match="just now"):
                again()


def test_what_is_to_be_deleted_waits_for_a_hold_that_is_placed_just_now(ada: User) -> None:
    row = of_a_patient()
    asked = erasing.ask(user=ada, email=f"{CANARY}@example.com", reason="Ticket 812.")
    bob = User.objects.create_superuser("bob")

    def refused() -> int:
        with pytest.raises(NotAllowed, match="legal hold"):
            erasing.approve(asked.pk, user=bob)
        return 0

    for delete in (empty_old, lambda: with_its_connections(refused)):
        with ThreadPoolExecutor(1) as pool, another_connection() as other:
            with other.transaction():
                other.execute("SELECT pg_advisory_xact_lock(%s)", [holds._LOCK])
                deleted = pool.submit(delete)
                until_blocked()
                sql = (
                    "INSERT INTO workflows_hold (workflow_id, reason, placed_by, until) VALUES (%s, '', '', 'infinity')"
                )
                other.execute(sql, [row.pk])
            assert deleted.result(10) == 0
        assert not is_emptied(row)
        Hold.objects.all().delete()


def test_it_has_a_reason_and_an_end_and_takes_the_permission(ada: User) -> None:
    for lasts in (timedelta(0), timedelta(days=9000)):
        with pytest.raises(NotAllowed, match="twenty years"):
            place(ada, old().pk, lasts=lasts)
    with pytest.raises(NotAllowed, match="not there"):
        place(ada, 0)
    with pytest.raises(NotAllowed, match="It has no e-mail address"):  # as far as this release knows
        place(ada, old(workflow_type="of another release").pk, of_person=True)
    with pytest.raises(PermissionDenied):
        place(User.objects.create_user("eve", is_staff=True), 1)


def test_a_hold_by_an_old_key_holds_what_was_there_and_what_comes_later(ada: User, settings: Settings) -> None:
    settings.SEARCH_KEYS = ["old" * 20]
    row, corrected = of_a_patient(), of_a_patient()
    (hold,) = place(ada, row.pk, of_person=True)
    search_rows.add(corrected.pk, ONBOARDING, {"patient": {"email": "right@example.com"}})
    with without_triggers():
        Workflow.objects.filter(pk=corrected.pk).update(payload={"patient": {"email": "right@example.com"}})
    settings.SEARCH_KEYS = ["new" * 20, "old" * 20]
    call_command("searchkeys", "rotate", stdout=(out := StringIO()))
    assert f"1 legal holds {WHY_IT_STAYS} until {hold.until:%Y-%m-%d %H:%M} UTC" in out.getvalue()
    later = of_a_patient()
    assert (empty_old(), [is_emptied(each) for each in (row, corrected, later)]) == (0, [False] * 3)
    assert [holds.on(each.pk).get() for each in (row, corrected, later)] == [hold] * 3
    Hold.objects.update(until=timezone.now())
    call_command("searchkeys", "rotate", stdout=(out := StringIO()))
    assert "legal holds" not in out.getvalue()
    assert set(SearchKeyHash.objects.values_list("key_id", flat=True)) == {search_keys.keys()[0].id}


WHY_IT_STAYS = (
    "are on an e-mail address by a hash of an older key, and nothing can make that again: leave the older key in "
    "SEARCH_KEYS"
)
