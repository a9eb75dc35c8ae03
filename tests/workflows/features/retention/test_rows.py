"""What was emptied long ago is deleted, and its keys start nothing a second time."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, OperationalError, connection, transaction
from django.test import Client
from pytest_django import Settings

from onboarding.workflow import ONBOARDING
from tests.engine import BLOCKED, another_connection, do_chore, elsewhere, until_blocked, with_its_connections
from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.features.retention.test_purge import child_of, long_ago, old, with_content
from workflows.definition import Retention
from workflows.features.business_key import holders
from workflows.features.retention import content
from workflows.ingress import api_keys
from workflows.intake.submissions import KeyReused, KeyTaken, enter, start
from workflows.models import BusinessKeyHash, Effect, Event, SpentKey, Workflow
from workflows.postgres.jsonb import parse
from workflows.postgres.statements import execute, fetch_all

pytestmark = pytest.mark.django_db(transaction=True)

SENT = parse(b'{"patient": {"email": "a@example.com"}}')


def chore(name: str) -> int:
    return elsewhere(lambda: do_chore(name).changed)


def emptied(make: Callable[..., Workflow] = rows.complete, days: int = 401, **fields: Any) -> Workflow:
    row = old(make, **{"completed_at": long_ago(days), **fields})
    with transaction.atomic():
        content.empty([row.pk])
    return row


def an_hour_passes() -> None:
    with without_triggers():
        execute("UPDATE workflows_spentkey SET at = at - interval '61 minutes'", [])


def delete_old() -> int:
    assert chore("delete old") == 0
    an_hour_passes()
    return chore("delete old")


def is_there(row: Workflow) -> bool:
    return Workflow.objects.filter(pk=row.pk).exists()


def left_of(row: Workflow) -> dict[str, int]:
    """The rows that name a workflow, by table."""
    with another_connection() as other:
        tables = other.execute(
            """SELECT table_name FROM information_schema.columns
                WHERE table_schema = current_schema() AND column_name = 'workflow_id'"""
        ).fetchall()
        counts = {
            table: other.execute(f"SELECT count(*) FROM {table} WHERE workflow_id = {row.pk}").fetchone()  # type: ignore[call-overload]
            for (table,) in tables
        }
    return {table.removeprefix("workflows_"): counted[0] for table, counted in counts.items() if counted[0]}


def test_all_that_belongs_to_it_goes_an_hour_after_its_keys_were_set_aside_and_the_audit_stays() -> None:
    row = with_content(old(rows.failed, completed_at=long_ago(401)))
    rows.event(row, "failed")
    BusinessKeyHash.objects.create(hash=b"of its business key", workflow=row, key_id=1, role="holder")
    assert (chore("empty old"), chore("delete old")) == (1, 0)
    assert chore("delete old") == 0
    an_hour_passes()
    assert chore("delete old") == 1
    assert not is_there(row)
    assert left_of(row) == {"access": 1, "event": 1, "businesskey": 1, "spentkey": 1}
    assert Event.objects.get().actor == "ada"


STAYS: dict[str, Callable[[], Workflow]] = {
    "younger": lambda: emptied(days=399),
    "not emptied": lambda: old(completed_at=long_ago(401)),
    "of no known type": lambda: emptied(workflow_type="gone"),
    "child with content": lambda: child_with_content(),
    "failed, and its charge stands": lambda: charged("done"),
    "failed, and a call was kept": lambda: charged("kept"),
}


def child_with_content() -> Workflow:
    parent = emptied()
    child_of(parent)
    return parent


def charged(state: str) -> Workflow:
    row = emptied(rows.failed, workflow_type="onboarding")
    call = {"step": "execute_checkout", "state": state, "result": {"charge_id": "ch_1"}}
    Effect.objects.create(workflow=row, attempt=1, idempotency_key="k", **call)
    return row


def test_what_is_younger_or_may_still_matter_stays() -> None:
    made = {why: make() for why, make in STAYS.items()}
    goes = emptied(workflow_type="onboarding")
    child = emptied(parent=goes, parent_wait="all", child_key="1")
    charge = {"step": "execute_checkout", "state": "done", "result": {}, "attempt": 1, "idempotency_key": "k"}
    Effect.objects.create(workflow=goes, **charge)
    assert delete_old() == 2
    assert (is_there(goes), is_there(child)) == (False, False)
    assert [why for why, row in made.items() if not is_there(row)] == []


def test_a_row_that_somebody_holds_is_left_for_the_next_slice() -> None:
    row = emptied()
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow WHERE id = %s FOR NO KEY UPDATE", [row.pk])
        assert delete_old() == 0
    assert delete_old() == 1


def test_a_worker_that_dies_meanwhile_leaves_it_as_it_was() -> None:
    row = emptied(rows.failed)
    rows.event(row, "failed")
    effect = Effect.objects.create(workflow=row, step="reserve", state="undone", attempt=1, idempotency_key="k")
    assert chore("delete old") == 0
    an_hour_passes()
    before = left_of(row)

    def killed() -> None:
        with pytest.raises(OperationalError):
            with_its_connections(lambda: do_chore("delete old"))

    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_effect WHERE id = %s FOR UPDATE", [effect.pk])
        dying = Thread(target=killed)
        dying.start()
        until_blocked()
        other.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM ({BLOCKED.replace('1', 'pid', 1)}) blocked")
        dying.join(10)
    assert (is_there(row), left_of(row)) == (True, before)


# --- Its keys ------------------------------------------------------------------------------------------


def again(key: Any, client: str = "web") -> Any:
    return enter(ONBOARDING, idempotency_key=key, payload=SENT, submitted_by=client)


@pytest.mark.parametrize(
    ("make", "state"), [(rows.complete, "complete"), (rows.failed, "failed"), (rows.cancelled, "cancelled")]
)
def test_what_is_sent_again_is_answered_as_before(make: Callable[..., Workflow], state: str) -> None:
    row = emptied(make, workflow_type="onboarding", submitted_by="web")
    delete_old()
    entry = again(row.idempotency_key)
    assert (entry.id, entry.status, entry.state, entry.replayed) == (row.pk, row.status, state, True)
    with pytest.raises(KeyTaken):
        again(row.idempotency_key, "another")
    assert not Workflow.objects.exists()


def test_its_sender_is_told_that_it_is_gone_and_nobody_else() -> None:
    row = emptied(submitted_by="web")
    delete_old()

    def told(client: str) -> tuple[int, str]:
        authorization = {"HTTP_AUTHORIZATION": f"Bearer {api_keys.create(client)}"}
        answer = Client().get(f"/v1/submissions/{row.idempotency_key}", **authorization)
        return answer.status_code, answer.json()["code"]

    assert told("web") == (410, "deleted")
    assert told("another") == (404, "not_found")


def test_a_key_of_another_type_was_used_for_something_else() -> None:
    row = emptied(submitted_by="web")
    delete_old()
    with pytest.raises(KeyReused):
        again(row.idempotency_key)


def begin(business_key: str = "order 7", key: Any = None, client: str = "web") -> Any:
    return start(
        rows.PARCEL, tenant="shop", business_key=business_key, payload=SENT, submitted_by=client, idempotency_key=key
    )


def test_what_is_started_again_under_either_key_is_the_same_workflow() -> None:
    row = emptied(business_key="order 7", tenant="shop", submitted_by="web")
    delete_old()
    assert (begin().id, begin(key=row.idempotency_key).id) == (row.pk, row.pk)
    with pytest.raises(KeyReused):
        begin("order 8", key=row.idempotency_key)
    assert not Workflow.objects.exists()


@pytest.mark.parametrize(
    ("make", "days", "kept", "stays"),
    [
        (rows.complete, 0, 0, True),
        (rows.complete, 401, 0, False),
        (rows.failed, 0, 0, False),
        (rows.failed, 401, 1, True),
    ],
)
def test_of_its_business_key_stays_what_can_still_decide_something(
    settings: Settings, make: Callable[..., Workflow], days: int, kept: bool, stays: bool
) -> None:
    """After a completion nothing can for long; after a failure a charge that stands, whatever key is put in place."""
    settings.SEARCH_KEYS = ["old" * 20]
    sent = {"patient": {"email": "ann@example.com", "first_name": "A"}, "checkout": {"program": "sleep"}}
    row = old(make, workflow_type="onboarding", payload=sent, completed_at=long_ago(days))
    hashes = holders.hashes_of(row)
    for each, key_id in hashes:
        BusinessKeyHash.objects.create(hash=each, workflow=row, key_id=key_id, role="holder")
    if kept:
        Effect.objects.create(workflow=row, step="execute_checkout", state="kept", idempotency_key="k", attempt=1)
    with transaction.atomic():
        content.empty([row.pk])
    settings.SEARCH_KEYS = ["new" * 20, "old" * 20]
    call_command("searchkeys", "rotate", stdout=(out := StringIO()))
    assert ("1 hashes of business keys stay" in out.getvalue()) == stays
    assert BusinessKeyHash.objects.filter(workflow=row).exists() == stays
    again = rows.workflow(workflow_type="onboarding", payload=sent)
    assert [each.counts for each in holders.read(fetch_all, ONBOARDING, again, hashes)] == [True] * stays


# --- The command, the database --------------------------------------------------------------------------


def test_the_command_counts_and_then_deletes() -> None:
    row = emptied()

    def said(*options: str) -> Any:
        call_command("purge", *options, "--json", stdout=(out := StringIO()))
        return json.loads(out.getvalue())["deleted"]

    assert (said("--dry-run"), said(), is_there(row)) == ({"parcel": 1}, {}, True)
    an_hour_passes()
    assert (said("--dry-run"), said(), is_there(row)) == ({"parcel": 1}, {"parcel": 1}, False)


def refused(sql: str, *parameters: Any) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            transaction.set_rollback(True)
    except IntegrityError:
        return True
    return False


def test_the_database_looks_at_the_age_and_at_the_spent_key() -> None:
    def both(row: Workflow) -> tuple[bool, bool]:
        rows.event(row, "failed")
        return (
            refused("DELETE FROM workflows_event WHERE workflow_id = %s AND actor = ''", row.pk),
            refused("DELETE FROM workflows_workflow WHERE id = %s", row.pk),
        )

    young, full, row = emptied(days=29), old(completed_at=long_ago(401)), emptied()
    SpentKey.objects.bulk_create(
        SpentKey(workflow_id=each.pk, idempotency_key=each.idempotency_key, status=each.status)
        for each in (young, full)
    )
    an_hour_passes()
    assert (both(young), both(full), both(row)) == ((True, True), (True, True), (False, True))
    chore("delete old")
    assert both(row) == (False, True)
    an_hour_passes()
    assert both(row) == (False, False)
    rows.event(row, "retried", actor="ada")
    assert refused("DELETE FROM workflows_event WHERE workflow_id = %s", row.pk)
    assert refused("DELETE FROM workflows_spentkey")
    assert refused("TRUNCATE workflows_event")


@pytest.mark.parametrize("ages", [{"content": 6}, {"rows": 29, "content": 20}, {"rows": 80}])
def test_an_age_that_the_database_refuses_is_refused(ages: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="longer"):
        Retention(**{name: timedelta(days=days) for name, days in ages.items()})  # type: ignore[arg-type]
