"""Where a definition is private, messages that are not delivered are sealed; and keys of what is not there go."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone
from pytest_django import Settings

from tests import engine
from tests.engine import another_connection, until_blocked, with_its_connections
from tests.workflows.outbox.conftest import destinations
from tests.workflows.undoing import ada
from workflows import operations
from workflows.errors import NotAllowed
from workflows.ingress import messages
from workflows.ingress.messages import Arrived
from workflows.intake.submissions import enter
from workflows.models import ContentKey, Signal, UndeliveredMessage, Workflow
from workflows.models.content_key import Unopened
from workflows.postgres.jsonb import InputRefused, parse
from workflows.postgres.statements import execute, fetch_row
from workflows.retention import ages
from workflows.sealing import key_register, lost_keys, private, rows

__all__ = ["destinations"]

pytestmark = engine.ENGINE

CANARY = "canary"
MESSAGE = {"name": "paid", "linking_id": "L-1", "payload": {"name": CANARY}}


def pays(*, workflow: Workflow, context: Any) -> None: ...


@pytest.fixture(autouse=True)
def private_definition(engine: None) -> None:
    define()


def define(*, is_private: bool = True) -> None:
    engine.define([pays], private=is_private)


def keep(offset: int = 7) -> UndeliveredMessage:
    headers: messages.Headers = [("id", CANARY.encode()), ("none", None)]
    arrived = Arrived("orders", 0, offset, 1, headers, json.dumps(MESSAGE).encode(), CANARY.encode())
    messages.keep_undelivered(arrived, InputRefused("early", "It came too early."))
    return UndeliveredMessage.objects.get(offset=offset)


def stored() -> str:
    return str(fetch_row("SELECT string_agg(to_json(m)::text, '') FROM workflows_undeliveredmessage m"))


def test_a_message_is_sealed_once_and_redelivered_in_clear() -> None:
    row = keep()
    keep()
    assert (row.key, row.value, CANARY in stored()) == (None, None, False)
    assert ContentKey.objects.count() == 1
    assert Arrived.kept(row).headers == [("id", CANARY.encode()), ("none", None)]
    operations.redeliver(row.pk, user=ada())
    signal = Signal.objects.get()
    assert (signal.dedupe_key, signal.payload) == (CANARY, {"name": CANARY})


def test_one_from_before_is_redelivered_as_it_was() -> None:
    define(is_private=False)
    row = keep()
    assert bytes(row.key or b"") == CANARY.encode()
    define()
    operations.redeliver(row.pk, user=ada())
    assert Signal.objects.get().payload == {"name": CANARY}
    assert Arrived.kept(UndeliveredMessage(topic="orders", partition=0, offset=8, headers=[])).value == b""


def test_one_whose_key_is_deleted_is_not_delivered_but_discarded() -> None:
    row = keep()
    ContentKey.objects.all().delete()
    with pytest.raises(NotAllowed, match="cannot be read"):
        operations.redeliver(row.pk, user=ada())
    operations.discard(row.pk, user=ada(), reason="Lost.")
    assert UndeliveredMessage.objects.get().state == "discarded"


def test_its_key_goes_with_it_when_it_is_old() -> None:
    row, young = keep(), keep(offset=8)
    UndeliveredMessage.objects.update(state="discarded")
    UndeliveredMessage.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(days=91))
    (old,) = (each for each in ages.OLD if each.table == "workflows_undeliveredmessage")
    assert ages.forget(old).changed == 1
    assert (UndeliveredMessage.objects.get(), ContentKey.objects.count()) == (young, 1)
    assert json.loads(Arrived.kept(young).value) == MESSAGE


def test_the_key_of_a_message_is_rotated(settings: Settings) -> None:
    row = keep()
    settings.DATA_KEYS = ["the-new-one", *settings.DATA_KEYS]
    datakeys("rotate")
    settings.DATA_KEYS = ["the-new-one"]
    row.refresh_from_db()
    assert json.loads(Arrived.kept(row).value) == MESSAGE
    ContentKey.objects.update(wrapped=private.Key.new(uuid4()).wrapped)
    with pytest.raises(CommandError, match="1 rows"):
        call_command("datakeys", "check", stdout=(out := StringIO()))
    assert f"the key {ContentKey.objects.get().pk}: " in out.getvalue()


def test_a_lost_key_that_is_replaced_while_it_is_rotated_stays_the_new_one(settings: Settings) -> None:
    lost = lose()
    settings.DATA_KEYS = ["the-new-one", *settings.DATA_KEYS]
    (found,) = rows._other_keys()
    send(lost.row)
    rows._reseal(rows.begin(), found)
    assert not isinstance(Workflow.objects.get().payload, Unopened)


# --- Keys of what is not there any more ---------------------------------------------------------------


def datakeys(*arguments: str) -> str:
    call_command("datakeys", *arguments, stdout=(out := StringIO()))
    return out.getvalue()


def send(key: Any = None) -> Workflow:
    entry = enter(engine.DEFINITION, idempotency_key=key or uuid4(), payload=parse(b"{}"), submitted_by="shop")
    return Workflow.objects.get(pk=entry.id)


def lose() -> private.Key:
    key = private.Key.new(uuid4())
    ContentKey.objects.create(idempotency_key=key.row, wrapped=key.wrapped)
    return key


def test_keys_of_what_a_restore_has_lost_are_counted_and_deleted_and_no_others() -> None:
    send()
    keep()
    key = lose()
    signal = Signal.objects.create(
        source="s", dedupe_key="1", linking_id="L", payload=json.loads(key.seal("signal", "{}"))
    )
    lose()
    assert "1 keys of what is not here any more" in datakeys("check")
    assert "1 keys would be deleted" in datakeys("forget", "--dry-run")
    assert "1 keys were deleted" in datakeys("forget")
    assert "any more" not in datakeys("check")
    assert ContentKey.objects.count() == 3
    signal.delete()
    assert lost_keys.forget() == 1


@pytest.mark.parametrize("table", ["workflow", "signal", "undeliveredmessage"])
def test_while_a_backup_is_loaded_none_is_deleted(table: str) -> None:
    send()
    lose()
    with transaction.atomic():
        # As before its data is there.
        execute(f"ALTER TABLE workflows_{table} DROP CONSTRAINT workflows_{table}_pkey CASCADE", ())
        with pytest.raises(CommandError, match="being loaded"):
            datakeys("forget")
        transaction.set_rollback(True)
    execute("TRUNCATE workflows_workflow", ())
    with pytest.raises(CommandError, match="being loaded"):
        datakeys("forget")
    assert ContentKey.objects.count() == 2


def test_the_key_of_a_row_that_is_being_stored_just_now_stays() -> None:
    send()
    lost = lose()
    new = private.Key.new(lost.row)
    with ThreadPoolExecutor(1) as pool, another_connection() as other:
        with other.transaction():  # as the intake does
            change = "UPDATE workflows_contentkey SET wrapped = %s WHERE idempotency_key = %s"
            other.execute(change, [new.wrapped, lost.row])
            forgotten = pool.submit(with_its_connections, lost_keys.forget)
            until_blocked()
        assert forgotten.result(timeout=10) == 0
    assert ContentKey.objects.get(pk=lost.row).wrapped == new.wrapped


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("consumekafka", {"brokers": "127.0.0.1:9", "topics": "orders"}),
        ("consumesqs", {"queue": "https://q", "client": "shop", "dead_letters": "https://d"}),
        ("relayoutbox", {"drain": True}),
        ("runworker", {"drain": True}),
    ],
)
def test_a_process_that_lacks_a_key_in_use_does_not_start(
    command: str, options: dict[str, Any], destinations: Callable[..., None], settings: Settings
) -> None:
    key_register.register()
    settings.DATA_KEYS = ["another"]
    with pytest.raises(CommandError, match="which DATA_KEYS lacks"):
        call_command(command, **options)
