"""Private workflows are withdrawn: their table goes, but not while anything is sealed under one of its keys."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from io import StringIO
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from tests import engine
from tests.workflows import rows
from workflows.ingress.messages import Arrived
from workflows.models import Effect, Signal, UndeliveredMessage
from workflows.postgres.statements import execute, fetch_row

pytestmark = engine.ENGINE

WITHDRAWN = import_module("workflows.migrations.0014_withdraw_private")
((_, BEFORE),) = WITHDRAWN.Migration.dependencies
KEY = "INSERT INTO workflows_contentkey (idempotency_key, wrapped) VALUES (%s, 'sealed:')"
MESSAGE = """
    INSERT INTO workflows_undeliveredmessage (topic, "partition", "offset", code, reason, key, value, headers, state)
    VALUES ('t', 0, %s, 'x', 'x', %s, %s, '[["id", "YQ=="], ["none", null]]', %s)"""


def migrate(to: str = "") -> None:
    call_command("migrate", "workflows", *([to] if to else []), verbosity=0, stdout=StringIO())


@pytest.fixture
def before() -> Iterator[None]:
    migrate(BEFORE)
    try:
        yield
    finally:
        execute("TRUNCATE workflows_undeliveredmessage, workflows_workflow CASCADE", ())
        migrate()


def is_migrated() -> bool:
    return fetch_row("SELECT to_regclass('workflows_contentkey') IS NULL") == (True,)


def test_a_key_or_what_is_sealed_under_one_keeps_everything_as_it_is(request: pytest.FixtureRequest) -> None:
    row = rows.waiting()
    Effect.objects.create(workflow=row, step="charge", state="done", idempotency_key="k", attempt=1, result={})
    rows.outbox_event(row)
    Signal.objects.create(workflow=row, source="s", dedupe_key="d", name="paid")
    request.getfixturevalue("before")
    execute(KEY, [uuid4()])
    with pytest.raises(CommandError, match=r"still there: 1 in workflows_contentkey\. .* datakeys forget"):
        migrate()
    assert not is_migrated()
    execute("DELETE FROM workflows_contentkey", ())
    execute(MESSAGE, [1, None, None, ""])
    for table, column in WITHDRAWN.PLACES:
        for stored in ("""{"(sealed)": "a:b:c", "n": 1}""", """{"payload": [{"(sealed)": "a:b:c"}]}"""):
            with transaction.atomic():
                assert execute(f"UPDATE workflows_{table} SET {column} = %s::jsonb", [stored]) == 1, table
                with pytest.raises(CommandError, match=rf"there: 1 in workflows_{table}\.{column}\. "):
                    WITHDRAWN.refuse(None, connection.schema_editor())
                transaction.set_rollback(True)


@pytest.mark.usefixtures("before")
def test_else_it_goes_and_messages_are_kept_in_one_column() -> None:
    rows.workflow(payload={"note": 'He wrote "(sealed)": "x" on it.', "(sealed)": 1})  # not a text: a person's own
    execute(MESSAGE, [1, b"k" * 99, b"v" * 99, ""])
    execute(MESSAGE, [2, None, b"v", ""])
    execute(MESSAGE, [3, b"k", b"v", "discarded"])
    migrate()
    assert is_migrated()
    first, second, settled = UndeliveredMessage.objects.order_by("offset")
    assert Arrived.kept(first) == Arrived("t", 0, 1, None, [("id", b"a"), ("none", None)], b"v" * 99, b"k" * 99)
    assert Arrived.kept(second).key is None
    assert settled.content == []
