"""SERVER: checks of PostgreSQL itself, from its own views, by any role.

A role outside `pg_monitor` sees no times of other roles' sessions: grant it that role.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from workflows.features.doctor.findings import Finding, Level
from workflows.postgres import migrating, server_log, sqlstates
from workflows.postgres.statements import execute, fetch_all, fetch_row
from workflows.wording import length

# A claim takes as long as its workflow's steps; the transaction of a backup or report takes minutes.
LONG, TOO_LONG = timedelta(minutes=10), timedelta(hours=1)
# How long a session may wait for a lock. A migration gives up after seconds.
WAITS_LONG = timedelta(minutes=1)
# How many transactions a replica or a slot may be behind: some hours of a busy day.
XIDS_BEHIND = 10_000_000
# How many bytes of WAL an unused slot may retain.
WAL_KEPT = 10 * 1024**3
# PostgreSQL starts a vacuum against wraparound at `autovacuum_freeze_max_age`. One and a half times that is behind. At
# 2,147 million it refuses to write.
BEHIND, NEAR_THE_END = 1.5, 1_500_000_000
# An autovacuum is behind at three times its threshold of dead rows, in tables that are not small.
DEAD_TIMES, DEAD_ROWS = 3.0, 50_000
# Shares of the connections that are not reserved for the superuser.
MANY_SESSIONS, TOO_MANY_SESSIONS = 0.8, 0.95
CLOCKS_DIFFER = timedelta(seconds=5)
DISK_FULL = "53100"


def is_read_only() -> Iterator[Finding]:
    """The server takes writes."""
    (recovering, read_only) = fetch_row("SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::bool")
    if recovering or read_only:
        what = "is a standby" if recovering else "is set to be read-only"
        cure = "Connect to the primary, or promote this one: docs/operations.md, Replication."
        yield Finding(Level.CRITICAL, "read only", f"The server {what}: nothing can be stored.", cure)


def synchronous() -> Iterator[Finding]:
    """A standby is there for COMMITs that wait for one. Without pg_monitor a role does not see which one it is."""
    (names,) = fetch_row(
        """SELECT current_setting('synchronous_standby_names') WHERE NOT pg_is_in_recovery()
            AND NOT EXISTS (SELECT FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum'))
            UNION ALL SELECT '' LIMIT 1"""
    )
    if names:
        what = f"No standby is there that a COMMIT waits for ({names}): nothing is stored, and the intake answers 503."
        cure = "Start one. End no session that waits (SyncRep): docs/how-to/lost-primary.md."
        yield Finding(Level.CRITICAL, "synchronous", what, cure)


def room() -> Iterator[Finding]:
    """A table can grow: a full disk refuses submissions, while what needs no new page is stored."""
    try:
        with transaction.atomic():
            execute("CREATE TEMP TABLE doctor_room AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)", [])
            transaction.set_rollback(True)
    except DatabaseError as error:
        if sqlstates.sqlstate(error) == DISK_FULL:
            what = "The server's disk is full: nothing can be stored, and workers that live cannot say so."
            cure = "Make room: docs/operations.md, OnrampDiskFull. Restart nothing, and delete nothing of PostgreSQL's."
            yield Finding(Level.CRITICAL, "disk", what, cure)


def pooler() -> Iterator[Finding]:
    """The session is the server's own, as workers need it."""
    (pid,) = fetch_row("SELECT pg_backend_pid()")
    if pid != connection.connection.info.backend_pid:
        what = "A pooler is in the way to the server: workers refuse to start. The intake and the console work."
        cure = 'Connect the workers to PostgreSQL itself: docs/deployment.md, "How many connections".'
        yield Finding(Level.WARNING, "pooler", what, cure)


def clocks() -> Iterator[Finding]:
    """The clock of this host agrees with the server's."""
    before = timezone.now()
    (theirs,) = fetch_row("SELECT clock_timestamp()")
    differ = max(before - theirs, theirs - timezone.now())
    if differ > CLOCKS_DIFFER:
        what = f"The clocks of this host and of the server differ by {length(differ.total_seconds())}."
        cure = "Set both by the same time servers (chronyc tracking): workflows go by the server's, logs by the host's."
        yield Finding(Level.WARNING, "clocks", what, cure)


def durability() -> Iterator[Finding]:
    """What was committed survives a crash of the machine."""
    off = fetch_all(
        "SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY 1"
    )
    if off:
        names = " and ".join(name for (name,) in off)
        what = f"The server runs with {names} off: a crash of its machine loses or spoils what was stored."
        yield Finding(Level.CRITICAL, "durability", what, f"Set {names} to on, and restart PostgreSQL.")


def old_transactions() -> Iterator[Finding]:
    """No session has been in a transaction for long: vacuum removes no row that one may still see."""
    for pid, name, user, state, seconds, holds in fetch_all(
        """SELECT pid, coalesce(nullif(application_name, ''), 'a session'), usename, state,
                  extract(epoch FROM clock_timestamp() - xact_start)::float8,
                  backend_xmin IS NOT NULL OR backend_xid IS NOT NULL
             FROM pg_stat_activity
            WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND datname = current_database()
              AND application_name IS DISTINCT FROM %(migrate)s AND xact_start < clock_timestamp() - %(long)s
            ORDER BY xact_start LIMIT 10""",
        {"migrate": migrating.NAME, "long": LONG},
    ):
        harm = "vacuum removes nothing that has died since" if holds else "a migration would wait for it"
        yield Finding(
            Level.CRITICAL if seconds >= TOO_LONG.total_seconds() else Level.WARNING,
            "old transaction",
            f"{name} (process {pid}, role {user}, {state}) has been in a transaction for {length(seconds)}: {harm}.",
            f"Find out what it does; SELECT pg_terminate_backend({pid}), by a role with pg_signal_backend, ends it.",
        )


def prepared_transactions() -> Iterator[Finding]:
    """No prepared transaction was forgotten: it keeps its locks, and what vacuum would remove, over restarts too."""
    for gid, owner, seconds in fetch_all(
        """SELECT gid, owner, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
            WHERE database = current_database() AND prepared < clock_timestamp() - %(long)s
            ORDER BY prepared LIMIT 10""",
        {"long": LONG},
    ):
        what = (
            f"The transaction {gid!r} of {owner} was prepared {length(seconds)} ago, and neither committed nor undone."
        )
        cure = "Onramp prepares none. Ask its owner; then COMMIT PREPARED or ROLLBACK PREPARED it."
        yield Finding(Level.CRITICAL, "prepared transaction", what, cure)


def replication_slots() -> Iterator[Finding]:
    """Each replication slot is in use: the server keeps the WAL, and maybe dead rows, for one that is not."""
    for name, active, kept, xids, pretty in fetch_all(
        """SELECT slot_name, active, kept, greatest(age(xmin), age(catalog_xmin), 0), pg_size_pretty(kept)
             FROM pg_replication_slots, LATERAL (SELECT CASE WHEN pg_is_in_recovery() THEN 0 ELSE
                      coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint END AS kept) wal
            WHERE NOT active OR greatest(age(xmin), age(catalog_xmin)) > %(behind)s ORDER BY kept DESC LIMIT 10""",
        {"behind": XIDS_BEHIND},
    ):
        too_much = kept >= WAL_KEPT or xids > XIDS_BEHIND
        state = (
            f"is {xids:,} transactions behind" if active else f"is used by nobody, and {pretty} of WAL are kept for it"
        )
        yield Finding(
            Level.CRITICAL if too_much else Level.WARNING,
            "replication slot",
            f"The replication slot {name!r} {state}.",
            f"Start its replica again; if that is gone for good: SELECT pg_drop_replication_slot('{name}').",
        )


def standbys() -> Iterator[Finding]:
    """No standby (hot_standby_feedback) makes the server keep dead rows for long."""
    for pid, name, xids in fetch_all(
        """SELECT pid, application_name, age(backend_xmin) FROM pg_stat_replication
            WHERE age(backend_xmin) > %(behind)s ORDER BY 3 DESC LIMIT 10""",
        {"behind": XIDS_BEHIND},
    ):
        what = (
            f"A query on the standby {name} (process {pid}) keeps what has died in {xids:,} transactions from vacuum."
        )
        yield Finding(Level.WARNING, "standby", what, "End that query on the standby, or set hot_standby_feedback off.")


def wraparound() -> Iterator[Finding]:
    """Old rows are frozen long before transaction ids run out, in each database: they share the ids."""
    for database, kind, age, limit in fetch_all(
        """SELECT datname, kind, age, limit_ FROM pg_database CROSS JOIN LATERAL (VALUES
               ('transaction ids', age(datfrozenxid), current_setting('autovacuum_freeze_max_age')::float8),
               ('multixact ids', mxid_age(datminmxid), current_setting('autovacuum_multixact_freeze_max_age')::float8)
           ) ids (kind, age, limit_) WHERE age > limit_ * %(behind)s OR age > %(end)s ORDER BY age DESC""",
        {"behind": BEHIND, "end": NEAR_THE_END},
    ):
        yield Finding(
            Level.CRITICAL if age > NEAR_THE_END else Level.WARNING,
            "wraparound",
            f"The oldest {kind} in {database} are {age:,} old, and vacuum should have frozen them at {limit:,.0f}: "
            "at 2,147,000,000 PostgreSQL takes no more writes.",
            "End old transactions, prepared ones and unused slots (above), then run VACUUM (FREEZE) in that database.",
        )


def autovacuum() -> Iterator[Finding]:
    """The server vacuums, and keeps up."""
    off = fetch_all(
        "SELECT name FROM pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off' ORDER BY name"
    )
    for (name,) in off:
        what = f"{name} is off: tables grow with each update, and the planner knows nothing of their rows."
        yield Finding(Level.CRITICAL, "autovacuum", what, f"ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf().")
    for table, dead, due, last, is_off in fetch_all(_DEAD, {"times": DEAD_TIMES, "rows": DEAD_ROWS}):
        when = f"last vacuumed {last:%Y-%m-%d %H:%M} UTC" if last else "never vacuumed since the statistics began"
        off_here = " Autovacuum is off for this table." if is_off else ""
        yield Finding(
            Level.WARNING,
            "autovacuum",
            f"Autovacuum is behind on {table}: {dead:,} dead rows, where it is due at {due:,.0f}; {when}.{off_here}",
            f"See what holds it back (above); VACUUM {table} once, then raise autovacuum_vacuum_cost_limit.",
        )


_DEAD = """
    SELECT relid::regclass::text, n_dead_tup, due, greatest(last_vacuum, last_autovacuum) AT TIME ZONE 'UTC',
           NOT coalesce(enabled::bool, true)
      FROM pg_stat_user_tables JOIN pg_class ON pg_class.oid = relid CROSS JOIN LATERAL (
           SELECT max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold'),
                  max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor'),
                  max(option_value) FILTER (WHERE option_name = 'autovacuum_enabled')
             FROM pg_options_to_table(reloptions)) options (threshold, scale, enabled) CROSS JOIN LATERAL (
           SELECT coalesce(threshold, current_setting('autovacuum_vacuum_threshold'))::float8 + greatest(reltuples, 0)
                * coalesce(scale, current_setting('autovacuum_vacuum_scale_factor'))::float8) needed (due)
     WHERE n_dead_tup > due * %(times)s AND n_dead_tup > %(rows)s ORDER BY n_dead_tup DESC LIMIT 10"""


def log_settings() -> Iterator[Finding]:
    """The server's log holds no values of our statements."""
    for leak in server_log.leaks():
        yield Finding(Level.WARNING if leak.rare else Level.CRITICAL, "log settings", leak.what, leak.cure)


def archiver() -> Iterator[Finding]:
    """The WAL is archived, so that a restore can reach any point in time."""
    (archives, fails, count, wal, since, no_timeout) = fetch_row(
        """SELECT current_setting('archive_mode') <> 'off'
                      AND current_setting('archive_command') || current_setting('archive_library') <> '',
                  last_failed_time > coalesce(last_archived_time, '-infinity'), failed_count, last_failed_wal,
                  last_archived_time AT TIME ZONE 'UTC', current_setting('archive_timeout') = '0'
             FROM pg_stat_archiver"""
    )
    if not archives:
        what = "No WAL is archived (archive_mode, archive_command): a restore loses what came after the last backup."
        yield Finding(Level.WARNING, "archive", what, "Set it up: docs/operations.md, Backup and restore.")
    elif fails:
        last = f"The last one was archived {since:%Y-%m-%d %H:%M} UTC." if since else "None was ever archived."
        what = f"The archive takes no WAL: {wal} failed, {count} failures in all. {last}"
        cure = "Is the archive's disk full? PostgreSQL's log says what failed. WAL is kept until it succeeds."
        yield Finding(Level.CRITICAL, "archive", what, cure)
    elif no_timeout:
        what = "archive_timeout is 0: at a quiet hour the last 16 MB of WAL, all that came since, are nowhere else."
        cure = "ALTER SYSTEM SET archive_timeout = '1min'; SELECT pg_reload_conf()."
        yield Finding(Level.WARNING, "archive", what, cure)


def connections() -> Iterator[Finding]:
    """There is room for more sessions."""
    (used, most) = fetch_row(
        """SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
                  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"""
    )
    if used >= most * MANY_SESSIONS:
        level = Level.CRITICAL if used >= most * TOO_MANY_SESSIONS else Level.WARNING
        cure = "Stop what needs none, or raise max_connections: docs/deployment.md, How many connections."
        yield Finding(level, "connections", f"{used} of {most} connections of the server are taken.", cure)


def locks() -> Iterator[Finding]:
    """No session waits long for a lock of another."""
    for pid, name, seconds, blockers in fetch_all(
        """SELECT a.pid, coalesce(nullif(a.application_name, ''), 'a session'),
                  extract(epoch FROM clock_timestamp() - l.since)::float8, pg_blocking_pids(a.pid)
             FROM pg_stat_activity a
             JOIN (SELECT pid, min(waitstart) AS since FROM pg_locks WHERE NOT granted GROUP BY pid) l ON l.pid = a.pid
            WHERE a.datname = current_database() AND l.since < clock_timestamp() - %(long)s
              AND NOT EXISTS (SELECT FROM pg_stat_activity b -- to end that session would lose what it has committed
                               WHERE b.pid = ANY (pg_blocking_pids(a.pid)) AND b.wait_event = 'SyncRep')
            ORDER BY l.since LIMIT 10""",
        {"long": WAITS_LONG},
    ):
        by = ", ".join(map(str, blockers)) or "none that is there now"
        what = f"{name} (process {pid}) has waited for a lock for {length(seconds)}, held by process {by}."
        cure = f"Look at {by} in pg_stat_activity; pg_terminate_backend() ends it."
        yield Finding(Level.CRITICAL, "lock", what, cure)


LOOKS = [
    is_read_only,
    synchronous,
    room,
    pooler,
    clocks,
    durability,
    log_settings,
    archiver,
    locks,
    old_transactions,
    prepared_transactions,
    replication_slots,
    standbys,
    wraparound,
    autovacuum,
    connections,
]
