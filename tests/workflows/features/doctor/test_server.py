"""What `manage.py doctor` says of the sessions and the settings of the server that the tests run on."""

from __future__ import annotations

import re
from datetime import timedelta
from threading import Thread

import pytest
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from tests.engine import another_connection
from tests.processes import until
from workflows.checks import check_server_log
from workflows.features.doctor import server
from workflows.features.doctor.findings import Finding, Level
from workflows.postgres.statements import execute

pytestmark = pytest.mark.django_db


def old_transactions() -> list[Finding]:
    """Only those of the session that these tests open: others work on the server, too."""
    execute("SELECT pg_stat_clear_snapshot()", [])  # else a transaction sees what it has seen before
    return [finding for finding in server.old_transactions() if finding.what.startswith("a report")]


def test_a_transaction_that_was_held_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with another_connection() as other:
        other.execute("SET application_name = 'a report'")
        other.execute("BEGIN")
        other.execute("SELECT 1")
        assert old_transactions() == [], "it is new"
        monkeypatch.setattr(server, "LONG", timedelta(0))
        (found,) = old_transactions()
        assert found.level == Level.WARNING
        assert f"(process {other.info.backend_pid}, role {other.info.user}, idle in transaction)" in found.what
        assert found.what.endswith("a migration would wait for it.")
        other.execute("SELECT pg_current_xact_id()")
        monkeypatch.setattr(server, "TOO_LONG", timedelta(0))
        (found,) = old_transactions()
        assert found.level == Level.CRITICAL
        assert found.what.endswith("vacuum removes nothing that has died since.")


def test_a_session_that_waits_for_a_lock_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with another_connection() as holder, another_connection() as waiter:
        holder.execute("SELECT pg_advisory_lock(24)")
        waits = Thread(target=lambda: waiter.execute("SELECT pg_advisory_xact_lock(24)"))
        waits.start()
        try:
            monkeypatch.setattr(server, "WAITS_LONG", timedelta(0))
            ours = f"held by process {holder.info.backend_pid}."
            until(lambda: [finding for finding in server.locks() if finding.what.endswith(ours)])
            monkeypatch.undo()
            assert not list(server.locks())
        finally:
            holder.execute("SELECT pg_advisory_unlock(24)")
            waits.join()


C = Level.CRITICAL


@pytest.mark.parametrize(
    ("settings", "findings"),
    [
        ({"log_statement": "all"}, []),
        ({"log_parameter_max_length": "-1"}, []),
        ({"log_parameter_max_length": "64", "log_statement": "mod"}, [C]),
        ({"log_parameter_max_length": "-1", "log_statement": "ddl"}, []),
        ({"log_parameter_max_length": "-1", "log_min_duration_statement": "0"}, [C]),
        ({"log_parameter_max_length": "-1", "log_min_duration_sample": "200"}, [C]),
        ({"log_parameter_max_length": "-1", "log_transaction_sample_rate": "0.1"}, [C]),
        ({"log_parameter_max_length_on_error": "-1"}, [C]),
        ({"log_error_verbosity": "default"}, [Level.WARNING]),
    ],
    ids=str,
)
def test_a_log_that_holds_values(settings: dict[str, str], findings: list[Level]) -> None:
    for setting, value in settings.items():
        execute("SELECT set_config(%s, %s, true)", [setting, value])
    found = list(server.log_settings())
    assert [finding.level for finding in found] == findings
    assert all(list(settings)[-1] in finding.what for finding in found)
    assert [message.id for message in check_server_log(databases=["default"])] == ["workflows.W019"] * len(found)
    assert check_server_log(databases=None) == []
    with override_settings(DEBUG=True):
        assert check_server_log(databases=["default"]) == []
    for finding in found:  # the cure, for this session
        execute(re.sub(r"ALTER ROLE \w+ SET ([^;]+);.*", r"SET LOCAL \1", finding.cure), [])
    assert not list(server.log_settings())


def test_a_server_that_takes_no_writes() -> None:
    assert not list(server.is_read_only())
    execute("SET LOCAL transaction_read_only = on", [])
    (found,) = server.is_read_only()
    assert found.level == Level.CRITICAL


def test_a_clock_that_differs_from_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(server.clocks())
    for seconds in (-7, 7):
        there = timezone.now() + timedelta(seconds=seconds)
        monkeypatch.setattr(server.timezone, "now", lambda there=there: there)
        (found,) = server.clocks()
        assert found.about == "clocks"
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("name", "value", "cure"),
    [
        ("auto_explain.log_min_duration", "200", "-1"),
        ("pgaudit.log_parameter", "on", "off"),
        ("log_destination", "stderr,jsonlog", "stderr"),
    ],
)
def test_a_module_or_a_format_that_logs_values(name: str, value: str, cure: str) -> None:
    """Of a server that has them."""
    told = f"SELECT '{name}', '{value}', 'superuser'"
    execute(
        f"CREATE TEMP VIEW pg_settings AS SELECT name, setting, context FROM pg_catalog.pg_settings UNION {told}", []
    )
    (found,) = server.log_settings()
    assert name in found.what
    assert f"SET {name} = {cure};" in found.cure


def test_wal_that_is_not_archived() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW archive_mode")
        if cursor.fetchone() != ("off",):
            pytest.skip("the server archives its WAL")
    (found,) = server.archiver()
    assert found.level == Level.WARNING
