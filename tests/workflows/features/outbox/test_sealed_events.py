"""What is published is sealed where it is stored, sent in clear, and emptied once it is settled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

from tests import engine
from tests.workflows.features.outbox.receiver import Receiver
from tests.workflows.features.outbox.test_relay import Told, crm, now, relay
from tests.workflows.undoing import ada
from workflows import outbox
from workflows.features.outbox import operations as outbox_operations
from workflows.features.outbox.relay import KEY_LACKING, UNREADABLE
from workflows.models import DataKey, OutboxEvent, Service, Workflow
from workflows.postgres.statements import execute, fetch_row
from workflows.sealing.key_register import require_keys

__all__ = ["crm"]

pytestmark = engine.ENGINE

BODY = {"name": "canary", "number": 1.5}


def tells(*, workflow: Workflow, context: Any) -> None:
    outbox.publish("order.paid", BODY)


@pytest.fixture
def publish(crm: Receiver) -> Callable[[], OutboxEvent]:
    engine.define([tells], publishes=["completed"])

    def run() -> OutboxEvent:
        engine.submit()
        assert engine.worker().process_next()
        return OutboxEvent.objects.filter(topic="order.paid").latest("id")

    return run


def test_it_is_sealed_where_it_is_stored_sent_in_clear_and_emptied(
    crm: Receiver, publish: Callable[[], OutboxEvent]
) -> None:
    publish()
    (stored,) = fetch_row("SELECT string_agg(body::text, ' ') FROM workflows_outboxevent")
    assert (stored.count("sealed:"), "canary" in stored, "COMPLETE" in stored) == (2, False, False)
    while relay().send_next():
        pass
    assert [each["data"].get("name", each["data"].get("status")) for each in crm.got] == ["canary", "COMPLETE"]
    assert crm.got[0]["data"] == BODY
    assert list(OutboxEvent.objects.values_list("state", "body")) == [("sent", {})] * 2


def test_what_is_not_sent_keeps_what_it_says_until_it_is_discarded(publish: Callable[[], OutboxEvent]) -> None:
    row = publish()
    OutboxEvent.objects.update(state=OutboxEvent.State.GIVEN_UP)
    outbox_operations.redeliver_event(row.pk, user=ada())
    assert now(row).body == row.body
    outbox_operations.discard_event(row.pk, user=ada(), reason="Not needed.")
    assert now(row).body == {}


def test_what_cannot_be_read_is_given_up_at_once_and_holds_up_no_other(
    crm: Receiver, publish: Callable[[], OutboxEvent]
) -> None:
    changed, moved, other = publish(), publish(), publish()
    OutboxEvent.objects.filter(pk=changed.pk).update(body=f"{other.body[:20]}{changed.body[20:]}")
    execute("UPDATE workflows_outboxevent SET body = %s::jsonb WHERE id = %s", [f'"{other.body}"', moved.pk])
    relay().send_next()
    assert [each["data"] for each in crm.got] == [BODY]
    assert [(now(each).state, now(each).error) for each in (changed, moved, other)] == [
        ("given_up", UNREADABLE.error),
        ("given_up", UNREADABLE.error),
        ("sent", ""),
    ]


def test_without_its_key_it_is_left_to_others_and_is_nobodys_outage(
    publish: Callable[[], OutboxEvent], settings: Settings
) -> None:
    row = publish()
    keys, settings.DATA_KEYS = settings.DATA_KEYS, ["another"]
    relay(Told()).send_next()
    assert (now(row).state, now(row).error, now(row).body) == ("", KEY_LACKING.error, row.body)
    assert not Service.objects.exists()
    settings.DATA_KEYS = keys
    OutboxEvent.objects.filter(pk=row.pk).update(due_at=row.at)
    relay(Told()).send_next()
    assert now(row).state == "sent"


def test_one_from_before_it_was_sealed_is_sent_as_it_is(crm: Receiver, publish: Callable[[], OutboxEvent]) -> None:
    OutboxEvent.objects.filter(pk=publish().pk).update(body=BODY)
    relay().send_next()
    assert crm.got[0]["data"] == BODY


def test_a_process_that_may_publish_registers_its_key(crm: Receiver, settings: Settings) -> None:
    require_keys()
    assert DataKey.objects.count() == 1
    DataKey.objects.all().delete()
    settings.OUTBOX_DESTINATIONS = {}
    require_keys()
    assert not DataKey.objects.exists()
