"""What sessions state, hooks after the commit, and migrations that wait for claims."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    DATABASE_ERRORS,
    HOOKS,
    LEFTOVERS,
    MIGRATE,
    MIGRATE_VACUUM,
    POOLER,
    SESSIONS,
    STATED,
    UNFIT,
)

MUTANTS: list[Mutant] = [
    *in_(
        "worker/commit.py",
        (
            "nothing ends a hook that hangs after the commit",
            "        committed = True\n        announce_hooks()\n",
            "        committed = True\n",
            f"{HOOKS}test_the_supervisor_knows_how_long_a_hook_may_take",
        ),
        (
            "what a hook leaves in its session is left to the next workflow",
            "    if has_hooks:\n        executor.reset_after_hooks()\n",
            "",
            f"{LEFTOVERS}test_a_hook_leaves_nothing_for_the_next_workflow",
        ),
        (
            "a transaction that was not committed counts as decided",
            "    if not committed:\n        raise ClaimLost",
            "    if False:\n        raise ClaimLost",
            f"{SESSIONS}test_a_connection_that_is_closed_right_before_the_commit_has_decided_nothing",
        ),
        (
            "a hook that fails after the commit is the engine's failure",
            "        if not committed:\n            raise\n",
            "        raise\n",
            f"{DATABASE_ERRORS}test_a_hook_that_fails_after_the_commit_changes_nothing",
        ),
    ),
    # --- What sessions state, and hooks after the commit ---
    *in_(
        "worker/loop.py",
        (
            "a poll that finds nothing leaves the deadline of a hook behind",
            "        if self._attempt:\n            now, step = monotonic()",
            "        if True:\n            now, step = monotonic()",
            f"{HOOKS}test_where_there_is_nothing_to_do_no_deadline_is_left_behind",
        ),
        (
            "workers take up new workflows while a migration waits",
            "busy = not held_up and self._take_up(thorough=drain)",
            "busy = self._take_up(thorough=drain)",
            f"{MIGRATE}test_meanwhile_workers_take_up_nothing_new_and_afterwards_all_of_it",
        ),
        (
            "a draining worker takes a migration for the end of the queue",
            "elif drain and not held_up:",
            "elif drain:",
            f"{MIGRATE}test_meanwhile_workers_take_up_nothing_new_and_afterwards_all_of_it",
        ),
        (
            "a busy worker never looks whether a migration waits",
            "monotonic() >= self._looked_at + LOOK_EVERY",
            "self._looked_at < 0",
            f"{MIGRATE}test_a_worker_that_is_busy_looks_once_a_second",
        ),
    ),
    *in_(
        "worker/lease.py",
        (
            "the server may end a journal that is idle while a step runs",
            '    "idle_session_timeout": "0",\n',
            "",
            f"{STATED}test_no_limit_of_the_servers_ends_a_worker_at_its_work",
        ),
        (
            "the server may end a claim for the length of its transaction",
            '    session_settings.state(session_settings.NO_TRANSACTION_TIMEOUT, "default", ALIAS)\n',
            "",
            f"{STATED}test_no_limit_of_the_servers_ends_a_worker_at_its_work",
        ),
    ),
    *in_(
        "apps.py",
        (
            "a commit may be lost in a crash, if the server's default says so",
            "        connection_created.connect(session_settings.tell)\n",
            "",
            f"{STATED}test_what_was_committed_survives_a_crash_whatever_the_default_is",
        ),
    ),
    *in_(
        "executor.py",
        (
            "after RESET ALL a decision may be lost in a crash",
            " + session_settings.again_sql(connection)",
            "",
            f"{STATED}test_a_decision_is_committed_so_although_the_steps_settings_are_reset",
        ),
    ),
    *in_(
        "postgres/session_settings.py",
        (
            "remote_apply becomes on",
            "\"setting <> 'remote_apply'\"",
            '"true"',
            f"{STATED}test_what_was_committed_survives_a_crash_whatever_the_default_is",
        ),
        (
            "what the URL of the database says does not stand",
            " AND source <> 'client'",
            "",
            f"{STATED}test_what_the_url_of_the_database_says_beats_it",
        ),
        (
            "an administrator's shorter limit of idle transactions does not stand",
            "\"setting = '0'\"",
            '"true"',
            f"{STATED}test_a_request_that_hangs_in_its_transaction_is_ended",
        ),
        (
            "a session that could not be told is used",
            "        wrapper.close()\n        raise\n",
            "        raise\n",
            f"{STATED}test_a_session_that_cannot_be_told_is_not_left_open",
        ),
    ),
    *in_(
        "worker/sessions.py",
        (
            "a worker works without what its session was told once it was open",
            " OR name = ANY (%s) AND source <> 'session'",
            " OR name = ANY (%s) AND false",
            f"{UNFIT}test_what_it_was_told_once_open_and_is_not_in_force_is_named",
        ),
    ),
    # --- Migrating under load ---
    *in_(
        "postgres/migrating.py",
        (
            "a migration behind a pooler leaves its request to the workers behind",
            "pg_advisory_xact_lock(%s)",
            "pg_advisory_lock(%s)",
            f"{POOLER}test_a_migration_through_a_pooler_lets_the_workers_go_on",
        ),
        (
            "a migration that is stopped holds the workers up for ever",
            "self._limit_silence(IDLE_LIMIT)",
            "pass",
            f"{MIGRATE}test_one_that_is_stopped_while_it_waits_stops_the_workers_for_a_minute",
        ),
        (
            "a migration that takes long lets the workers go on in its midst",
            'self._limit_silence("0")',
            "pass",
            f"{MIGRATE}test_a_try_that_takes_long_asks_for_all_of_that_time",
        ),
    ),
    *in_(
        "management/commands/migrate.py",
        (
            "submissions wait behind a migration that waits for a claim",
            "                    cursor.execute(f\"SET LOCAL lock_timeout = '{executor._lock_timeout}ms'\")\n",
            "                    pass\n",
            f"{MIGRATE}test_submissions_do_not_wait_behind_a_migration_that_waits_for_a_claim",
        ),
        (
            "a migration that does not get its locks is not tried again",
            "if sqlstates.sqlstate(error) not in _IN_USE:",
            "if True:",
            f"{MIGRATE}test_a_way_back_waits_just_so",
        ),
        (
            "what another has migrated meanwhile is migrated twice",
            "if is_done():",
            "if False:",
            f"{MIGRATE}test_what_another_has_migrated_meanwhile_is_not_migrated_twice",
        ),
        (
            "two that migrate do so at once",
            '                        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [migrating.ONE_AT_A_TIME])\n',
            "",
            f"{MIGRATE}test_of_two_one_waits_for_the_other_to_end",
        ),
        (
            "an autovacuum holds up a migration, and the workers with it",
            "LOCK_TIMEOUT_OF_VACUUM if self._is_vacuuming() else LOCK_TIMEOUT",
            "LOCK_TIMEOUT",
            f"{MIGRATE_VACUUM}test_an_autovacuum_gives_way_to_a_migration",
        ),
        (
            "a migration that waits does not say so",
            "request.pause(pause)",
            "__import__('time').sleep(pause)",
            f"{MIGRATE}test_meanwhile_workers_take_up_nothing_new_and_afterwards_all_of_it",
        ),
        (
            "a migration holds the workers up for ever",
            "            request.withdraw()\n",
            "",
            f"{MIGRATE}test_it_gives_up_says_why_and_lets_the_workers_go_on",
        ),
        (
            "a migration is tried for ever",
            "if monotonic() + pause > give_up_at:",
            "if False:",
            f"{MIGRATE}test_it_gives_up_says_why_and_lets_the_workers_go_on",
        ),
        (
            "a migration is tried again on the state that the last try has left",
            "lambda: apply(state.clone(), migration",
            "lambda: apply(state, migration",
            f"{MIGRATE}test_submissions_do_not_wait_behind_a_migration_that_waits_for_a_claim",
        ),
        (
            "a migration that is no transaction is tried again",
            "if not migration.atomic or self.connection.in_atomic_block:",
            "if self.connection.in_atomic_block:",
            f"{MIGRATE}test_one_that_is_no_transaction_is_not_tried_again",
        ),
        (
            "within somebody else's transaction a migration leaves its limit behind",
            "if not migration.atomic or self.connection.in_atomic_block:",
            "if not migration.atomic:",
            f"{MIGRATE}test_within_somebody_elses_transaction_nothing_can_be_tried_again",
        ),
    ),
]
