"""What each role may do in the database, tried out: all tables, all columns, by SQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from itertools import product
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction
from django.utils import timezone

from tests import roles as tested
from tests.data_table import documented
from tests.engine import do_chore
from tests.workflows import rows
from tests.workflows.intake.entering import DEFINITION, submission
from workflows.api.asgi import respond
from workflows.ingress import api_keys
from workflows.intake.batch import Batch, Row
from workflows.intake.submissions import find_replays
from workflows.management import roles
from workflows.models import BulkItem, Effect, Workflow

pytestmark = pytest.mark.django_db

NAMES = roles.Names(*(f"onramp_test_{role}_{os.getpid()}" for role in roles.Names._fields))
Column = tuple[str, str]


@pytest.fixture(autouse=True)
def applied(db: None) -> None:
    tested.apply(NAMES)


@contextmanager
def signed_in(role: str) -> Iterator[Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL ROLE {role}")
        yield cursor
        cursor.execute("RESET ROLE")


def is_refused(cursor: Any, sql: str, *parameters: Any) -> bool:
    try:
        with transaction.atomic():
            cursor.execute(sql, parameters)
    except ProgrammingError as error:
        if getattr(error.__cause__, "sqlstate", "") != "42501":
            raise
        return True
    return False


def columns(schema: str = "public") -> list[Column]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s", [schema]
        )
        return cursor.fetchall()


def test_a_worker_carries_out_what_users_do_to_many_and_reads_no_password() -> None:
    old_enough = timezone.now() - timedelta(days=2)
    boss, bob = (User.objects.create_superuser(each, date_joined=old_enough) for each in ("boss", "bob"))
    task = rows.open_task(rows.waiting(task=False), assignee=boss)
    again = {"four_eyes": True, "approved_by": bob}
    for verb, row, more in (
        ("retry", rows.failed().pk, {}),
        ("retry", rows.refunded().pk, {}),
        ("assign", task.pk, {"to": bob.pk}),
        ("redeliver_event", rows.outbox_event().pk, {}),
    ):
        made = rows.bulk_operation(boss, verb=verb, state="running", arguments=more, **again)
        made.items.create(row=row, seen=boss.pk if more else None)
    with signed_in(NAMES.worker):
        while do_chore("bulk operations").changed:
            pass
    assert list(BulkItem.objects.values_list("outcome", "why")) == [("done", "")] * 4


def test_the_console_puts_a_call_by_hand_on_record() -> None:
    with signed_in(NAMES.console):
        rows.made_by_hand(User(username="boss"))
    assert Effect.objects.get().by_hand == "en-77"


def readable(role: str, schema: str = "public") -> set[Column]:
    with signed_in(role) as cursor:
        return {
            (table, column)
            for table, column in columns(schema)
            if not is_refused(cursor, f'SELECT "{column}" FROM {schema}.{table} LIMIT 1')
        }


def changeable(role: str) -> set[Column]:
    """The tables that the role may change at all, and how."""
    tried = {"UPDATE": 'UPDATE {0} SET "{1}" = DEFAULT WHERE false', "DELETE": "DELETE FROM {0} WHERE false"}
    tried["TRUNCATE"] = "TRUNCATE {0}"
    with signed_in(role) as cursor:
        return {
            (table, verb)
            for (table, column), (verb, sql) in product(columns(), tried.items())
            if not is_refused(cursor, sql.format(table, column))
        }


def test_each_table_has_its_line() -> None:
    there = {table for table, _ in columns()}
    assert there == roles.RIGHTS.keys() == roles.tables().keys()
    assert roles.others() == []


def test_a_stolen_password_of_the_intake_reads_nothing_of_a_person() -> None:
    found = readable(NAMES.intake)
    assert found == {(table, column) for table, named in roles.INTAKE.items() for column in named.split()}
    personal = {(table, each) for table, of in documented().items() for each in of.in_clear | of.told}
    assert found & personal == {("workflows_workflow", "waiting_for")}
    assert changeable(NAMES.intake) == {("workflows_apikey", "UPDATE")}
    with signed_in(NAMES.intake) as cursor:
        assert is_refused(cursor, "UPDATE workflows_apikey SET tenant = ''")
        for table in {table for table, _ in columns()} - roles.INTAKE_INSERTS.keys():
            assert is_refused(cursor, f"INSERT INTO {table} DEFAULT VALUES"), table
        assert is_refused(cursor, "INSERT INTO workflows_workflow (status) VALUES ('COMPLETE')")
        assert is_refused(cursor, "CREATE FUNCTION trap() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        assert is_refused(cursor, f"SELECT * FROM {roles.SCHEMA}.workflows")


def test_the_intake_may_do_what_its_statements_do_at_each_of_its_doors() -> None:
    key, nobody = api_keys.create("shop"), cast(Any, None)
    sent = submission({"name": "Ada"}, client="shop").sealed(DEFINITION)
    of_shop: dict[str, Any] = {"submitted_by": "shop"}
    made = [make(**of_shop).pk for make in (rows.waiting, rows.parked, rows.retrying, rows.complete, rows.refunded)]
    made += [rows.failed(**of_shop).pk, rows.compensating(**of_shop).pk, rows.unclear_charge(**of_shop).workflow_id]
    paths = [f"/v1/submissions/{row.key}" for row in Workflow.objects.filter(pk__in=made)]
    with signed_in(NAMES.intake) as cursor:
        for hashes in ([], [b"a hash"]):
            row = Row(submission().sealed(DEFINITION), None, hashes, nobody)
            cursor.execute(*Batch([row]).insertion(DEFINITION, 0.1))
            assert len(cursor.fetchall()) == 1
        cursor.execute(*find_replays(DEFINITION, [sent]))
        api_keys.table.read()
        cursor.execute(api_keys._NOTE, [1])
        for path in [*paths, "/readyz"]:
            headers = [(b"authorization", f"Bearer {key}".encode())]
            answer = respond({"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers})
            assert answer.status == 200, (path, answer)


def test_a_reader_sees_views_without_personal_data_and_nothing_else() -> None:
    said = documented()
    for table, named in roles.VIEWS.values():
        assert set(named.split()) <= said[table].others, table
    assert readable(NAMES.reader) == set()
    assert readable(NAMES.reader, roles.SCHEMA) == set(columns(roles.SCHEMA))
    assert not changeable(NAMES.reader)
    with signed_in(NAMES.reader) as cursor:
        for function, arguments in LOOKS.items():
            assert is_refused(cursor, f"SELECT * FROM {function}({arguments})"), function


LOOKS = {
    "workflows_compare": "1, '{}', '{}', '[]'",
    "workflows_amount": "1, '{a}', '{b}'",
    "workflows_call": "1, 'a'",
    "workflows_passed_over": "1",
    "workflows_undo_question": "1",
}


def test_a_stolen_password_of_a_worker_signs_nobody_in_and_changes_no_user() -> None:
    found, changed = readable(NAMES.worker), changeable(NAMES.worker)
    of_staff = ("auth_", "axes_", "mfa_", "account_", "socialaccount_", "staff_", "usersessions_", "django_session")
    assert ("auth_user", "email") in found
    assert ("auth_user", "password") not in found
    assert not {table for table, _ in found if table.startswith(of_staff) and not table.startswith("auth_")}
    assert not {(table, verb) for table, verb in changed if table.startswith(of_staff)}
    with signed_in(NAMES.worker) as cursor:
        assert is_refused(cursor, "UPDATE workflows_apikey SET expires_at = NULL")
    for role in (NAMES.worker, NAMES.console):
        assert not {table for table, verb in changeable(role) if verb == "TRUNCATE"}


def test_a_comparison_tells_only_whether_all_of_a_payload_is_right() -> None:
    payload = {"token": "sealed:k:nonce", "old": "in clear", "name": "Ada"}
    row = Workflow.objects.create(idempotency_key="0" * 32, workflow_type="test", payload=payload).pk
    right, wrong = ([sha256(text).hexdigest()] for text in (b"in clear", b"another"))
    with signed_in(NAMES.intake) as cursor:

        def compare(sent: str, secrets: list[str], digests: list[str]) -> Any:
            cursor.execute(
                "SELECT workflows_compare(%s, %s::jsonb, %s, to_jsonb(%s::text[]))", [row, sent, secrets, digests]
            )
            return cursor.fetchone()[0]

        both, sealed_again = ["old", "token"], '"old": "sealed:k:1", "token": "sealed:k:2"'
        assert compare(f'{{"name": "Ada", {sealed_again}}}', both, [*right, *wrong]) == '[null, "sealed:k:nonce"]'
        assert compare(f'{{"name": "Ada", {sealed_again}}}', both, [*wrong, *wrong]) is None
        assert compare(f'{{"name": "Eve", {sealed_again}}}', both, [*right, *right]) is None
        # Nobody can have the rest left out and guess one field, by calling the others secret.
        assert compare('{"name": "Ada"}', both, [*wrong, *wrong]) is None
        assert compare("{}", ["name", *both], [*wrong, *right, *right]) is None


def test_an_amount_is_a_number_beside_a_currency_of_what_has_made_calls() -> None:
    payload = {"pay": {"cents": 4900, "currency": "USD", "card": "4242"}, "weight": 70, "country": "USA", "name": "Ada"}
    row = Workflow.objects.create(idempotency_key="0" * 32, workflow_type="test", payload=payload)

    def amount(number: str, currency: str) -> Any:
        with signed_in(NAMES.intake) as cursor:
            cursor.execute("SELECT workflows_amount(%s, %s, %s)", [row.pk, number.split("."), currency.split(".")])
            return cursor.fetchone()[0]

    assert amount("pay.cents", "pay.currency") is None
    Effect.objects.create(workflow=row, step="charge", state="done", attempt=1, result={"id": "ch_1"}, settled_by="ada")
    assert amount("pay.cents", "pay.currency") == '[4900, "USD"]'
    for number, currency in (("pay.card", "pay.currency"), ("weight", "pay.currency"), ("pay.cents", "pay.card")):
        assert amount(number, currency) is None
    with signed_in(NAMES.intake) as cursor:
        cursor.execute("SELECT workflows_call(id, 'id') FROM workflows_effect")
        assert cursor.fetchone() == ('{"result": {"id": true}, "by_hand": "", "settled_by": "a person"}',)


def test_it_takes_back_what_was_granted_before() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"GRANT SELECT (payload), UPDATE ON workflows_workflow TO {NAMES.intake}")
    assert ("workflows_workflow", "payload") in readable(NAMES.intake)
    tested.apply(NAMES)
    assert ("workflows_workflow", "payload") not in readable(NAMES.intake)
    assert ("workflows_workflow", "UPDATE") not in changeable(NAMES.intake)


def test_another_owner_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("grants", migrator=f"{NAMES.migrator}_2")
    script = capsys.readouterr().out
    with pytest.raises(Exception, match=r"The tables belong to .*, and not to"), connection.cursor() as cursor:
        cursor.execute(script.replace("BEGIN;", "", 1))
    with pytest.raises(CommandError, match="is not a plain name"):
        call_command("grants", "--intake", "x; DROP")


def test_users_of_the_projects_own_keep_their_password_too() -> None:
    assert "password" not in roles._columns_of_users().split()
    assert len(roles._columns_of_users().split()) == len(User._meta.concrete_fields) - 1
