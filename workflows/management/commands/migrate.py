"""`manage.py migrate`: Django's command, for a database that is in use.

A statement that changes a table waits for every transaction that has used it (a claim lasts as long as its steps), and
all others wait behind it, also the INSERT of a submission. So a migration waits half a second for each lock, is rolled
back, and is tried again after a pause. Meanwhile the workers take up nothing new: otherwise claim would follow claim,
and the table would never be free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from django.core.management import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import OperationalError, transaction
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.state import ProjectState

from workflows.management.arguments import seconds
from workflows.postgres import migrating, sqlstates

# Milliseconds. For so long all others wait behind a migration, at most once for each table that it changes.
LOCK_TIMEOUT = 500
# The same if an autovacuum may be in the way. The server cancels it for a waiting statement, but only when it checks
# for deadlocks, after a second. Otherwise workers would stand still during a large table's vacuum, for minutes.
LOCK_TIMEOUT_OF_VACUUM = 1500
# Seconds between two tries, doubling. In the meantime all others go on.
FIRST_PAUSE, MAX_PAUSE = 1.0, 8.0
# Seconds: ten times most claims, and the longest that workers should stand still.
LONGEST_WAIT = 600.0
# SQLSTATEs: a lock timed out, or (after a second) there was a deadlock.
_IN_USE = ("55P03", "40P01")


class Command(migrate.Command):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--patience",
            type=seconds,
            default=LONGEST_WAIT,
            metavar="SECONDS",
            help="How long to try a migration whose tables are in use; meanwhile workers claim nothing new (600).",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        def executor(connection: Any, progress: Any) -> PatientExecutor:
            say = self.stdout.write if options["verbosity"] else lambda _: None
            return PatientExecutor(connection, progress, patience=options["patience"], say=say)

        djangos: Any = migrate  # its command makes the executor itself
        usual, djangos.MigrationExecutor = djangos.MigrationExecutor, executor
        try:
            super().handle(*args, **options)
        finally:
            djangos.MigrationExecutor = usual


class _DoneMeanwhile(Exception):
    """Another `migrate` has run this migration since this one planned it."""


class PatientExecutor(MigrationExecutor):
    """Tries each transactional migration until it gets its locks, or `patience` (seconds) is over.

    A migration with `atomic = False` builds indexes CONCURRENTLY. It blocks nobody and cannot be tried again, so it
    waits as long as needed.
    """

    def __init__(self, connection: Any, progress: Any, *, patience: float, say: Callable[[str], object]) -> None:
        super().__init__(connection, progress)
        self._patience, self._say = patience, say
        self._request = migrating.Request(connection)
        self._trying: Migration | None = None

    def migrate(
        self, targets: Any, plan: Any = None, state: Any = None, fake: bool = False, fake_initial: bool = False
    ) -> ProjectState:
        try:
            while True:
                try:
                    return super().migrate(targets, plan, state, fake, fake_initial)
                except _DoneMeanwhile:
                    pass
                except OperationalError as error:
                    self._wait_for_another_try(error)
                self.loader.build_graph()  # from the migrations that are applied by now
                plan, state = self.migration_plan(targets), None
                if self._trying not in (migration for migration, _ in plan):
                    self._say(" another migrate has done it meanwhile. OK")
        finally:
            self._request.withdraw()

    def apply_migration(self, state: ProjectState, migration: Migration, *args: Any, **options: Any) -> ProjectState:
        with self._turn_of(migration, to_be_applied=True):
            return super().apply_migration(state, migration, *args, **options)

    def unapply_migration(self, state: ProjectState, migration: Migration, *args: Any, **options: Any) -> ProjectState:
        with self._turn_of(migration, to_be_applied=False):
            return super().unapply_migration(state, migration, *args, **options)

    @contextmanager
    def _turn_of(self, migration: Migration, *, to_be_applied: bool) -> Iterator[None]:
        """The migration's transaction, which never waits long for a lock.

        Only one runs at a time: a second `migrate` then finds that the migration is done.
        """
        if not migration.atomic or self.connection.in_atomic_block:
            yield
            return
        if migration != self._trying:
            self._trying, self._give_up_at = migration, monotonic() + self._patience
            self._pause, self._lock_timeout = FIRST_PAUSE, LOCK_TIMEOUT
        with transaction.atomic(self.connection.alias):
            with self.connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = '{self._lock_timeout}ms'")
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [migrating.ONE_AT_A_TIME])
            if ((migration.app_label, migration.name) in self.recorder.applied_migrations()) == to_be_applied:
                raise _DoneMeanwhile
            yield
        self._trying = None
        self._request.withdraw()

    def _wait_for_another_try(self, error: OperationalError) -> None:
        """Pause, while the workers take up nothing new. Raises the error if another try would not help."""
        if self._trying is None or sqlstates.sqlstate(error) not in _IN_USE:
            raise error
        if monotonic() + self._pause > self._give_up_at:
            raise CommandError(
                f"{self._trying} was not applied: its tables were in use for {self._patience:g} s. {self._oldest()} "
                "What came before it is applied, and the workers go on. Run it again, or end what uses the tables: "
                'see docs/deployment.md, "Migrating under load".'
            )
        self._say(f" in use, tried again in {self._pause:g} s; workers take up nothing new. {self._oldest()}")
        self._request.pause(self._pause)
        self._lock_timeout = LOCK_TIMEOUT_OF_VACUUM if self._is_vacuuming() else LOCK_TIMEOUT
        self._pause = min(self._pause * 2, MAX_PAUSE)

    def _is_vacuuming(self) -> bool:
        """Whether a table is being vacuumed or analyzed, also by hand, which the server does not cancel."""
        with self.connection.cursor() as cursor:
            cursor.execute(
                """SELECT EXISTS (
                       SELECT FROM pg_locks JOIN pg_class ON pg_class.oid = relation AND relkind IN ('r', 'p', 'm', 't')
                        WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
                          AND mode = 'ShareUpdateExclusiveLock' AND granted)"""
            )
            return bool(cursor.fetchone() == (True,))

    def _oldest(self) -> str:
        """The sessions with the oldest transactions, which may be in the way."""
        with self.connection.cursor() as cursor:
            cursor.execute(
                """SELECT format('%%s, process %%s, for %%s s',
                                 coalesce(nullif(application_name, ''), 'a session'), pid,
                                 round(extract(epoch FROM clock_timestamp() - xact_start)))
                     FROM pg_stat_activity
                    WHERE datname = current_database() AND pid <> pg_backend_pid()
                      AND application_name IS DISTINCT FROM %s
                      AND xact_start < clock_timestamp() - interval '0.5 second'
                    ORDER BY xact_start LIMIT 3""",
                [migrating.NAME],
            )
            oldest = [line for (line,) in cursor.fetchall()]
        return f"In a transaction: {'; '.join(oldest)}." if oldest else "No transaction is open any more."
