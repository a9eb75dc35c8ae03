"""What `manage.py doctor` finds on a server that is set up badly."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack
from threading import Thread

import pytest
from django.db import connection

from config.embedded.accounts import account_of, run_as
from config.embedded.server import Server
from tests.acceptance.test_synchronous import wait_for
from tests.config.embedded.servers import a_folder_that_all_can_enter
from tests.engine import another_connection
from tests.processes import until
from tests.workflows.features.doctor.conftest import SETTINGS
from workflows.features.doctor import server
from workflows.features.doctor.examination import examine
from workflows.features.doctor.findings import Level, Look
from workflows.health import surroundings
from workflows.postgres.statements import execute, fetch_one
from workflows.postgres.synchronous import COMMITS

pytestmark = pytest.mark.slow


def told(look: Look) -> list[tuple[Level, str]]:
    return [(finding.level, finding.what) for finding in look()]


def only(look: Look) -> tuple[Level, str]:
    (found,) = told(look)
    return found


def test_it_looks_at_the_server_though_no_table_of_ours_is_there(bad_server: Server) -> None:
    found = examine()
    assert [finding.level for finding in found] == sorted((finding.level for finding in found), reverse=True)
    assert {"durability", "autovacuum", "migrations"} <= {finding.about for finding in found}
    assert not {"queue", "not known"} & {finding.about for finding in found}


def test_a_crash_of_the_machine_would_lose_what_was_stored(bad_server: Server) -> None:
    level, what = only(server.durability)
    assert (level, "with fsync off" in what) == (Level.CRITICAL, True)


def test_the_archive_takes_no_wal(bad_server: Server) -> None:
    assert only(server.archiver)[0] == Level.WARNING, "no command says how"
    try:
        archive_by("false")
        until(lambda: fetch_one("SELECT last_failed_time FROM pg_stat_archiver", []) != (None,))
        level, what = only(server.archiver)
        assert (level, "None was ever archived" in what) == (Level.CRITICAL, True)
        assert surroundings.server()[1] > 0
        archive_by("true")
        until(lambda: "archive_timeout is 0" in "".join(what for _, what in told(server.archiver)))
        execute("ALTER SYSTEM SET archive_timeout = 60", [])
        execute("SELECT pg_reload_conf()", [])
        until(lambda: told(server.archiver) == [])
        assert surroundings.server()[1] == 0
        archive_by("false")
        until(lambda: "The last one was archived" in "".join(what for _, what in told(server.archiver)))
    finally:
        execute("ALTER SYSTEM RESET archive_timeout", [])
        archive_by("")


def archive_by(command: str) -> None:
    """By this from now on; the end of a segment of WAL wakes the archiver."""
    execute(f"ALTER SYSTEM SET archive_command = '{command}'", [])
    execute("SELECT pg_reload_conf()", [])
    execute("SELECT pg_logical_emit_message(false, '', 'something'), pg_sleep(0.1)", [])
    execute("SELECT pg_switch_wal()", [])


def test_commits_that_wait_for_a_standby_that_is_away(bad_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session that waits holds its locks. Nobody is told to end it: its COMMIT would be on no standby."""
    monkeypatch.setattr(server, "WAITS_LONG", server.WAITS_LONG * 0)
    assert told(server.synchronous) == []
    wait_for(bad_server, "away")
    with another_connection() as commits, another_connection() as waits:
        stores = f"SELECT pg_advisory_xact_lock(48), {COMMITS}"
        threads = [Thread(target=each.execute, args=[stores]) for each in (commits, waits)]
        try:
            until(lambda: told(server.synchronous))
            threads[0].start()
            until(lambda: fetch_one("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'", []))
            threads[1].start()
            until(lambda: fetch_one("SELECT 1 FROM pg_locks WHERE NOT granted", []))
            level, what = only(server.synchronous)
            assert (level, "waits for (away)" in what) == (Level.CRITICAL, True)
            assert told(server.locks) == []
        finally:
            wait_for(bad_server, "")
            for thread in threads:
                thread.join()


def test_a_standby_counts_while_it_follows(bad_server: Server) -> None:
    """It is a real sender of WAL, as a standby has one."""
    with another_connection(replication="true") as standby:
        assert surroundings.server().standbys == 0
        (here,) = fetch_one("SELECT pg_current_wal_flush_lsn()::text", []) or ("",)
        standby.pgconn.exec_(f"START_REPLICATION PHYSICAL {here}".encode())
        until(lambda: surroundings.server().standbys == 1)
        standby.close()
    until(lambda: surroundings.server().standbys == 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_disk_that_is_full(bad_server: Server) -> None:
    assert told(server.room) == []
    with a_folder_that_all_can_enter() as folder, ExitStack() as stack:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", str(folder)], check=False)
        if mounted.returncode:
            pytest.skip("Nothing can be mounted here.")
        stack.callback(subprocess.run, ["umount", str(folder)], check=True)
        shutil.chown(folder, bad_server.data.owner())
        execute(f"CREATE TABLESPACE small LOCATION '{folder}'", [])
        stack.callback(execute, "DROP TABLESPACE small", [])
        execute("SET temp_tablespaces = small", [])
        level, what = only(server.room)
        execute("RESET temp_tablespaces", [])
    assert (level, "disk is full" in what) == (Level.CRITICAL, True)


def test_a_prepared_transaction_that_was_forgotten(bad_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with another_connection() as other:
        other.execute("BEGIN; CREATE TABLE forgotten (); PREPARE TRANSACTION 'last spring'")
        assert told(server.prepared_transactions) == [], "it is new"
        monkeypatch.setattr(server, "LONG", server.LONG * 0)
        level, what = only(server.prepared_transactions)
        other.execute("ROLLBACK PREPARED 'last spring'")
    assert level == Level.CRITICAL
    assert "'last spring' of postgres" in what


def test_a_replication_slot_that_nobody_uses(bad_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with another_connection() as other:
        other.execute("SELECT pg_create_physical_replication_slot('gone', true)")
        assert only(server.replication_slots)[0] == Level.WARNING
        other.execute("SELECT pg_logical_emit_message(false, '', repeat('x', 100000))")
        monkeypatch.setattr(server, "WAL_KEPT", 100_000)
        level, what = only(server.replication_slots)
        other.execute("SELECT pg_drop_replication_slot('gone')")
    assert (level, "'gone' is used by nobody" in what) == (Level.CRITICAL, True)


def test_a_logical_slot_keeps_dead_rows(bad_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with another_connection() as other:
        other.execute("SELECT pg_create_logical_replication_slot('behind', 'pgoutput')")
        other.execute("CREATE TABLE moved (); DROP TABLE moved")
        monkeypatch.setattr(server, "XIDS_BEHIND", 0)
        level, _ = only(server.replication_slots)
        other.execute("SELECT pg_drop_replication_slot('behind')")
    assert level == Level.CRITICAL


def test_few_connections_are_left(bad_server: Server) -> None:
    most = 10 - 3  # reserved for the superuser
    with ExitStack() as stack:
        for used in range(2, most + 1):
            stack.enter_context(another_connection())
            expected = [] if used < 6 else [Level.WARNING if used == 6 else Level.CRITICAL]
            assert [level for level, _ in told(server.connections)] == expected, used


def test_dead_rows_that_no_autovacuum_removes(bad_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two tables with as many dead rows; an autovacuum of the larger one is not due."""
    monkeypatch.setattr(server, "DEAD_ROWS", 100)
    try:
        for name, live in (("small", 0), ("large", 10_000)):
            execute(f"CREATE TABLE {name} AS SELECT g FROM generate_series(1, {live + 1000}) g", [])
            execute(f"ANALYZE {name}", [])
            execute(f"DELETE FROM {name} WHERE g > {live}", [])
        execute("ANALYZE small", [])
        execute("SELECT pg_stat_force_next_flush()", [])
        said = [what for _, what in told(server.autovacuum)]
        assert "autovacuum is off" in said[0]
        assert [what.partition(":")[0] for what in said[1:]] == ["Autovacuum is behind on small"]
        assert "1,000 dead rows, where it is due at 50; never vacuumed" in said[1]
        execute("ALTER TABLE small SET (autovacuum_vacuum_threshold = 900, autovacuum_enabled = off)", [])
        assert len(told(server.autovacuum)) == 1, "the table's own threshold counts"
        execute("ALTER TABLE small SET (autovacuum_vacuum_threshold = 10)", [])
        assert "Autovacuum is off for this table." in told(server.autovacuum)[1][1]
    finally:
        execute("DROP TABLE IF EXISTS small, large", [])


def test_transaction_ids_run_out(bad_server: Server) -> None:
    """PostgreSQL's own tool moves the server on to a later transaction id, the first of a page of its log."""

    def restart(freeze_at: int, next_id: int | None = None) -> list[Level]:
        connection.close()
        bad_server.stop()
        if next_id:
            reset = bad_server.program("pg_resetwal"), "-x", str(next_id), bad_server.data
            run_as(account_of(bad_server.cluster), *reset)
        bad_server.start(**{**SETTINGS, "autovacuum_freeze_max_age": str(freeze_at)})
        return [level for level, what in told(server.wraparound) if "in onramp are" in what]

    with another_connection() as other:  # it keeps the server, which vacuums by force, from freezing this database
        other.execute("BEGIN; CREATE TABLE held (); PREPARE TRANSACTION 'held'")
    assert restart(100_000, 4 * 32_768) == []
    assert restart(100_000, 5 * 32_768) == [Level.WARNING]
    restart(2_000_000_000)  # it does not vacuum by force
    execute("ROLLBACK PREPARED 'held'", [])  # or the next restart would take a minute
    assert restart(2_000_000_000, 48_828 * 32_768) == [Level.CRITICAL]
