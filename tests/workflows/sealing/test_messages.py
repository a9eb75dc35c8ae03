"""A message that is not delivered is sealed, whatever the definitions say, and emptied once it is settled."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from tests import engine
from tests.workflows.undoing import ada
from workflows.errors import NotAllowed
from workflows.features.outbox import events
from workflows.features.queues import messages as undelivered
from workflows.ingress import messages
from workflows.ingress.messages import Arrived
from workflows.models import DataKey, OutboxEvent, Signal, UndeliveredMessage
from workflows.postgres.jsonb import InputRefused
from workflows.postgres.statements import fetch_row
from workflows.sealing import rows, whole

pytestmark = engine.ENGINE

CANARY = "canary-of-ada"
MESSAGE = {"name": "paid", "linking_id": "L-1", "payload": {"name": CANARY}}


@pytest.fixture(autouse=True)
def keys(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DATA_KEYS = ["the-old-one"]
    settings.OUTBOX_DESTINATIONS = json.dumps({"lake": {"kafka": "events", "topics": ["*"]}})
    monkeypatch.setattr(rows, "LONGEST_REST", 0.0)
    monkeypatch.setattr(rows, "SLICE", 2)


def keep(offset: int = 7) -> UndeliveredMessage:
    headers: messages.Headers = [("id", CANARY.encode()), ("none", None)]
    arrived = Arrived("orders", 0, offset, 1, headers, json.dumps(MESSAGE).encode(), CANARY.encode())
    messages.keep_undelivered(arrived, InputRefused("early", "It came too early."))
    row = UndeliveredMessage.objects.get(offset=offset)
    assert Arrived.kept(row) == arrived
    return row


def datakeys(*arguments: str) -> str:
    call_command("datakeys", *arguments, stdout=(out := StringIO()))
    return out.getvalue()


def test_a_message_is_sealed_once_and_redelivered_in_clear() -> None:
    row = keep()
    assert keep() == row
    (stored,) = fetch_row("SELECT to_json(m)::text FROM workflows_undeliveredmessage m")
    assert ("sealed:" in stored, CANARY in stored, DataKey.objects.count()) == (True, False, 1)
    undelivered.redeliver(row.pk, user=ada())
    signal = Signal.objects.get()
    assert (signal.dedupe_key, signal.payload) == (CANARY, {"name": CANARY})
    assert UndeliveredMessage.objects.get().content == []


def test_one_that_does_not_open_is_not_delivered_but_discarded(settings: Settings) -> None:
    row, other = keep(), keep(8)
    UndeliveredMessage.objects.filter(pk=other.pk).update(content=row.content)  # of another place
    settings.DATA_KEYS, lacking = ["another"], settings.DATA_KEYS
    for each, settings.DATA_KEYS in ((row, ["another"]), (other, lacking)):
        with pytest.raises(NotAllowed, match="cannot be read"):
            undelivered.redeliver(each.pk, user=ada())
    undelivered.discard(row.pk, user=ada(), reason="Lost.")
    row.refresh_from_db()
    assert (row.state, row.content) == ("discarded", [])


def test_what_is_not_settled_is_checked_filled_and_rotated(settings: Settings) -> None:
    in_clear, sealed, settled = keep(), keep(8), keep(9)
    UndeliveredMessage.objects.filter(pk=in_clear.pk).update(content=whole.unseal(in_clear, in_clear.content))
    UndeliveredMessage.objects.filter(pk=settled.pk).update(state="discarded")
    pk = engine.submit().pk
    for state in ("sent", "given_up", ""):
        events.store(pk, "order.paid", {"name": CANARY}, key=state)
        OutboxEvent.objects.filter(state="").update(state=state)
    assert {line.partition(" (")[0] for line in datakeys("check").splitlines()} == {
        "1 in clear",
        "3 under the key 1 of DATA_KEYS",
    }
    assert "1 secrets are sealed" in datakeys("fill")
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    assert "4 secrets are sealed" in datakeys("rotate")
    settings.DATA_KEYS = ["the-new-one"]
    assert datakeys("check") == f"4 under the key 1 of DATA_KEYS ({DataKey.objects.get().pk})\n"
    for row in (in_clear, sealed):
        row.refresh_from_db()
        assert json.loads(Arrived.kept(row).value) == MESSAGE
    settings.DATA_KEYS = ["another"]
    with pytest.raises(CommandError, match="4 rows have a secret that does not open"):
        call_command("datakeys", "check", stdout=(out := StringIO()))
    assert f"undelivered message {sealed.pk}: " in out.getvalue()


def test_what_is_settled_while_it_is_rotated_stays_empty(settings: Settings) -> None:
    row = keep()
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    (found,) = rows._of_tables()
    undelivered.discard(row.pk, user=ada(), reason="Not needed.")
    rows._reseal(rows.begin(), found)
    assert UndeliveredMessage.objects.get().content == []
