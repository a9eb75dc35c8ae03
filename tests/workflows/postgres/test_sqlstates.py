"""What is told of a database error: its class and SQLSTATE, and nothing that somebody has typed."""

import psycopg
import pytest
from django.db import Error, connection, transaction

from workflows.errors import ClaimLost
from workflows.postgres import sqlstates


def error_of(sql: str) -> Error:
    with pytest.raises(Error) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    return raised.value


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("SELECT 'Lovelace'::int", "InvalidTextRepresentation 22P02"),
        ("SELECT 1 FROM lovelace", "UndefinedTable 42P01"),
        ("SET LOCAL transaction_read_only = on; DELETE FROM auth_group", "ReadOnlySqlTransaction 25006"),
        ("INSERT INTO auth_group (name) VALUES (NULL)", "NotNullViolation 23502 (auth_group.name)"),
        (
            "INSERT INTO auth_group (name) VALUES ('Lovelace'), ('Lovelace')",
            "UniqueViolation 23505 (auth_group_name_key)",
        ),
    ],
)
def test_it_names_the_sqlstate_and_what_of_the_schema_but_no_value(sql: str, told: str) -> None:
    error = error_of(sql)
    assert sqlstates.loggable(error) == told
    with pytest.raises(ClaimLost) as raised:
        raise ClaimLost from error
    assert sqlstates.loggable(raised.value) == told


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sql", "is_transient"),
    [
        ("PREPARE p AS SELECT * FROM t; ALTER TABLE t ADD COLUMN b int; EXECUTE p", True),
        ("SELECT 1 UNION SELECT 2 FOR UPDATE", False),
    ],
)
def test_a_plan_that_a_migration_has_made_stale_passes_and_no_other_0A000(sql: str, is_transient: bool) -> None:  # noqa: N802
    error = error_of(f"CREATE TEMP TABLE t (a int); {sql}")
    assert (sqlstates.sqlstate(error), sqlstates.is_transient(error)) == ("0A000", is_transient)


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("host=nobody.invalid", "name not known"),
        ("host=/nowhere", "no server at this socket"),
        ("host=127.0.0.1 port=1", "connection refused"),
    ],
)
def test_causes_are_told_in_words_of_ours(address: str, cause: str) -> None:
    with pytest.raises(psycopg.OperationalError) as raised:
        psycopg.connect(f"{address} user=lovelace dbname=ada connect_timeout=3")
    assert sqlstates.loggable(raised.value) == f"OperationalError: {cause}"


def test_a_cause_that_we_have_no_words_for_is_not_told() -> None:
    assert sqlstates.loggable(psycopg.OperationalError("FATAL: lovelace")) == "OperationalError"


def test_the_server_is_named_without_database_and_user(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = connection.settings_dict
    monkeypatch.setitem(settings, "HOST", "db.example")
    monkeypatch.setitem(settings, "PORT", "6432")
    assert sqlstates.host_port("default") == "db.example:6432"
    monkeypatch.setitem(settings, "HOST", "")
    monkeypatch.setitem(settings, "PORT", "")
    assert sqlstates.host_port("default") == "the local socket:5432"
