"""What is kept by its own age goes when it is old, and nothing else; the database looks at the age of the audit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from tests.workflows import rows
from workflows.features.retention import ages
from workflows.models import Access, CircuitEvent, Event, Search, Signal, UndeliveredMessage, Workflow

pytestmark = pytest.mark.django_db


def forget() -> None:
    for old in ages.OLD:
        with transaction.atomic():
            ages.forget(old)


def ago(days: float) -> Any:
    return timezone.now() - timedelta(days=days)


def message(at: Any, **fields: Any) -> UndeliveredMessage:
    place = {"topic": "t", "partition": 0, "offset": UndeliveredMessage.objects.count(), "code": "x"}
    return UndeliveredMessage.objects.create(created_at=at, **place, **{"state": "discarded", **fields})


def signal(at: Any, **fields: Any) -> Signal:
    fact = {"source": "shop", "dedupe_key": str(Signal.objects.count()), "name": "paid", "created_at": at}
    return Signal.objects.create(**fact, **{"linking_id": "gone", "closed_at": at, **fields})


def event_of_a_deleted_workflow(at: Any, actor: str = "ada") -> Event:
    return Event.objects.create(workflow_id=1, kind="retried", actor=actor, at=at)


def log_entry(at: Any) -> LogEntry:
    user, _ = User.objects.get_or_create(username="ada")
    return LogEntry.objects.create(user=user, action_flag=1, object_repr="x", action_time=at)


# By table: how a row of an age comes to be.
MAKE: dict[str, Callable[[Any], Any]] = {
    "workflows_access": lambda at: Access.objects.create(actor="ada", kind="viewed", at=at),
    "workflows_search": lambda at: Search.objects.create(actor="ada", tried=[], hits=0, at=at),
    "workflows_circuitevent": lambda at: CircuitEvent.objects.create(service="s", kind="held", at=at),
    "django_admin_log": log_entry,
    "workflows_event": event_of_a_deleted_workflow,
    "workflows_undeliveredmessage": message,
    "workflows_signal": signal,
}


@pytest.mark.parametrize("old", ages.OLD, ids=lambda old: old.table)
def test_what_is_older_than_its_age_goes_and_what_is_younger_stays(old: ages.Old) -> None:
    days = getattr(settings, old.days)
    gone, left = (MAKE[old.table](ago(days + more)) for more in (0.1, -0.1))
    assert [ages.forget(old).changed, ages.forget(old).changed] == [1, 0]
    assert list(type(gone).objects.all()) == [left]


def test_the_page_about_data_says_so_of_these_tables_and_of_no_other() -> None:
    cells = [line.split("|") for line in (settings.BASE_DIR / "docs/data.md").read_text().splitlines()]
    said = {each[1].strip(" `"): each[-2] for each in cells if len(each) == 8 and "_KEPT_DAYS" in each[-2]}
    for old in ages.OLD:
        assert f"`{old.days}` ({getattr(settings, old.days)})" in said.pop(old.table)
    assert set(said) == {"axes_accessfailurelog", "axes_accesslog"}  # tests/staff/test_records.py


STAYS: list[Callable[[Any], Any]] = [
    lambda at: Event.objects.create(workflow=rows.complete(), kind="retried", actor="ada", at=at),
    lambda at: event_of_a_deleted_workflow(at, actor=""),
    lambda at: message(at, state=""),
    lambda at: signal(at, closed_at=None),
    lambda at: signal(at, linking_id=None, workflow=rows.complete()),
    lambda at: [rows.complete(linking_id="used"), signal(at, linking_id="used")][1],
]


def test_what_belongs_to_a_workflow_or_waits_for_a_person_stays_whatever_its_age() -> None:
    stay = [make(ago(3_000)) for make in STAYS]
    goes = signal(ago(100), linking_id=None, closed_at=None, workflow_id=0)  # of none that is there
    forget()
    assert all(type(row).objects.filter(pk=row.pk).exists() for row in stay)
    assert not Signal.objects.filter(pk=goes.pk).exists()


def test_a_round_goes_on_behind_what_stays_and_ends_at_what_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "SIZE", 2)
    kinds = {"is old and stays": {"state": ""}, "goes": {}}
    made = [message(ago(100), **kinds[each]) for each in ("is old and stays", "is old and stays", "goes", "goes")]
    made += [message(ago(1)), message(ago(1)), message(ago(1))]
    old = next(each for each in ages.OLD if each.table == "workflows_undeliveredmessage")
    first = ages.forget(old)
    assert first == (0, made[1].pk, 0)
    assert ages.forget(old, first.next) == (2, made[3].pk, 0)
    assert ages.forget(old, made[3].pk) == (0, 0, 0)


@pytest.mark.parametrize("table", [each.table for each in ages.OLD if each.days == "AUDIT_KEPT_DAYS"])
def test_the_database_refuses_to_delete_what_is_on_record_for_less_than_a_year(table: str, settings: Any) -> None:
    settings.AUDIT_KEPT_DAYS = 10
    old = next(each for each in ages.OLD if each.table == table)
    row = MAKE[table](ago(364))
    with pytest.raises(IntegrityError), transaction.atomic():
        ages.forget(old)
    assert type(row).objects.exists()


def test_the_database_refuses_to_delete_what_people_did_to_a_workflow_that_is_there() -> None:
    Event.objects.create(workflow=rows.complete(), kind="retried", actor="ada", at=ago(3_000))
    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.all().delete()
    assert Workflow.objects.count() == 1
