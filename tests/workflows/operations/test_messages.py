"""Undelivered messages: redelivered when what was wrong is mended, or discarded; one, and many at once."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User

from tests.workflows import rows
from tests.workflows.operations.test_bulk import carry_out, member
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import previews as bulk_previews
from workflows.features.queues import messages
from workflows.models import BulkItem, Signal, UndeliveredMessage


def too_early(offset: int, key: Any, **fields: Any) -> UndeliveredMessage:
    """A message to a workflow that was not there yet."""
    value = json.dumps({"name": "paid", "workflow": str(key), "payload": {"ok": True}}).encode()
    return rows.undelivered_message(offset, code="workflow_not_found", value=value, sent_at_ms=7, **fields)


def test_a_message_that_came_too_early_is_delivered_as_if_it_came_now(boss: User) -> None:
    row = rows.waiting(wake_on=["paid"])
    message = too_early(3, row.idempotency_key)
    messages.redeliver(message.pk, user=boss, reason="It was early.")
    signal = Signal.objects.get()
    assert (signal.workflow_id, signal.source, signal.payload) == (row.pk, "kafka:facts", {"ok": True})
    message.refresh_from_db()
    assert message.state == "redelivered"
    assert LogEntry.objects.get().change_message == "Redelivered. It was early."
    with pytest.raises(NotAllowed, match="redelivered already"):
        messages.redeliver(message.pk, user=boss)


def test_its_id_still_tells_a_duplicate(boss: User) -> None:
    row, headers = rows.workflow(), [["id", b64encode(b"m-1").decode()]]
    for offset in (3, 4):
        messages.redeliver(too_early(offset, row.idempotency_key, headers=headers).pk, user=boss)
    assert Signal.objects.get().dedupe_key == "m-1"


def test_what_still_cannot_be_delivered_stays(boss: User) -> None:
    message = rows.undelivered_message(value=b"{")
    with pytest.raises(NotAllowed, match="still cannot"):
        messages.redeliver(message.pk, user=boss)
    message.refresh_from_db()
    assert (message.state, Signal.objects.count()) == ("", 0)


def test_a_discarded_message_is_kept_and_not_delivered(boss: User) -> None:
    message = too_early(3, rows.workflow().idempotency_key)
    with pytest.raises(NotAllowed):
        messages.discard(message.pk, user=boss, reason=" ")
    messages.discard(message.pk, user=boss, reason="A test.")
    with pytest.raises(NotAllowed, match="discarded already"):
        messages.redeliver(message.pk, user=boss)
    assert not Signal.objects.exists()


def test_many_at_once(db: None) -> None:
    row, eve = rows.workflow(), member("engineer")
    for offset in range(3):
        too_early(offset, row.idempotency_key)
    bad, done = rows.undelivered_message(8, value=b"{"), rows.undelivered_message(9, state="discarded")
    every = UndeliveredMessage.objects.order_by().values("pk")
    made = bulk.choose("redeliver", every, user=eve, chosen_by="all of them")
    shown = bulk_previews.preview(made, eve)
    assert (shown.can, shown.cannot) == (4, [(1, "discarded already")])
    bulk.start(made.pk, user=eve, reason="They were early.")
    carry_out(made)
    assert (Signal.objects.count(), bulk.outcomes(made)[made.pk]) == (3, {"": 0, "done": 3, "skipped": 2, "failed": 0})
    skipped = set(BulkItem.objects.filter(outcome="skipped").values_list("row", flat=True))
    assert skipped == {bad.pk, done.pk}
    assert LogEntry.objects.filter(change_message__endswith=f"In bulk operation {made.pk}.").count() == 3
