"""What a private workflow publishes is sealed where it is stored, and sent in clear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import Settings

from tests import engine
from tests.workflows.outbox.receiver import Receiver
from tests.workflows.outbox.test_relay import Told, crm, now, relay
from workflows import outbox
from workflows.intake.submissions import enter
from workflows.models import ContentKey, OutboxEvent, Service, Workflow
from workflows.outbox.relay import KEY_LACKING, UNREADABLE
from workflows.postgres.jsonb import parse
from workflows.postgres.statements import execute, fetch_row

__all__ = ["crm"]

pytestmark = engine.ENGINE


def tells(*, workflow: Workflow, context: Any) -> None:
    outbox.publish("order.paid", {"name": "canary"})


@pytest.fixture
def publish(crm: Receiver) -> Callable[[], OutboxEvent]:
    engine.define([tells], private=True, publishes=["completed"])

    def run() -> OutboxEvent:
        enter(engine.DEFINITION, idempotency_key=uuid4(), payload=parse(b"{}"), submitted_by="shop")
        assert engine.worker().process_next()
        return OutboxEvent.objects.filter(topic="order.paid").latest("id")

    return run


def test_it_is_sealed_where_it_is_stored_and_sent_in_clear(crm: Receiver, publish: Callable[[], OutboxEvent]) -> None:
    assert publish().body == {"name": "canary"}
    assert "canary" not in str(fetch_row("SELECT string_agg(body::text, '') FROM workflows_outboxevent"))
    while relay().send_next():
        pass
    assert [each["data"].get("name") for each in crm.got] == ["canary", None]


def test_what_cannot_be_read_is_given_up_at_once_and_holds_up_no_other(
    crm: Receiver, publish: Callable[[], OutboxEvent]
) -> None:
    lost, moved, other = publish(), publish(), publish()
    ContentKey.objects.filter(pk=Workflow.objects.get(pk=lost.workflow_id).idempotency_key).delete()
    execute(
        "UPDATE workflows_outboxevent SET body = (SELECT body FROM workflows_outboxevent WHERE id = %s) WHERE id = %s",
        [other.id, moved.id],
    )
    relay().send_next()
    assert [each["data"] for each in crm.got] == [{"name": "canary"}]
    assert [(now(each).state, now(each).error) for each in (lost, moved, other)] == [
        ("given_up", UNREADABLE.error),
        ("given_up", UNREADABLE.error),
        ("sent", ""),
    ]


def test_without_the_key_of_the_keys_it_is_left_to_others_and_is_nobodys_outage(
    publish: Callable[[], OutboxEvent], settings: Settings
) -> None:
    row = publish()
    keys, settings.DATA_KEYS = settings.DATA_KEYS, ["another"]
    relay(Told()).send_next()
    assert (now(row).state, now(row).error) == ("", KEY_LACKING.error)
    assert not Service.objects.exists()
    settings.DATA_KEYS = keys
    OutboxEvent.objects.filter(pk=row.pk).update(due_at=row.at)
    relay(Told()).send_next()
    assert now(row).state == "sent"
