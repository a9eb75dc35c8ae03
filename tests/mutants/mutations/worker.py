"""A worker: its loop, its sessions, its chores."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    CANCELLATION_REQUESTS,
    CHILDREN,
    CHORES,
    EFFECTS,
    EXPIRY,
    FAULTS,
    HEARTBEAT,
    JOURNAL,
    LEADERS,
    LEASE,
    MULTIXACTS,
    PACE,
    REFUSALS,
    REFUSED_RESULTS,
    SESSIONS,
    SIGNALS,
    SIGNALS_NOBODY_WAITS_FOR,
    SLOTS,
    UNFIT,
)

MUTANTS: list[Mutant] = [
    *in_(
        "worker/supervisor.py",
        (
            "a process that cannot be started ends the others",
            "            self._fork_again_at = monotonic() + MAX_RESTART_DELAY\n            return\n",
            "            raise\n",
            "acceptance/test_runworker.py::test_a_child_that_cannot_be_started_ends_nobody_and_is_started_when_it_can_be",
        ),
        (
            "each worker has a copy of its own of what was imported",
            "        gc.freeze()\n",
            "",
            "acceptance/test_runworker.py::test_one_more_process_needs_little_memory_of_its_own",
        ),
    ),
    *in_(
        "worker/heartbeat.py",
        (
            "workers of other queues share the full looks",
            "WHERE queue = %(queue)s AND stopped_at",
            "WHERE (true OR queue = %(queue)s) AND stopped_at",
            f"{HEARTBEAT}test_a_worker_learns_with_each_beat_how_many_look_at_its_queue",
        ),
        (
            "workers that have stopped share the full looks",
            " AND stopped_at IS NULL AND id <>",
            " AND id <>",
            f"{HEARTBEAT}test_a_worker_learns_with_each_beat_how_many_look_at_its_queue",
        ),
        (
            "workers that take compensation only share the full looks of the others",
            ' AND "only" = %(only)s',
            "",
            f"{HEARTBEAT}test_workers_that_take_compensation_only_share_their_looks_among_themselves",
        ),
        (
            "workers that are not heard of share the full looks",
            "       AND last_seen > clock_timestamp() - interval '{LOOKS_FOR} s')",
            ")",
            f"{HEARTBEAT}test_a_worker_learns_with_each_beat_how_many_look_at_its_queue",
        ),
    ),
    *in_(
        "worker/loop.py",
        (
            "a worker that drains ends before it has looked in full",
            "self._take_up(thorough=drain)",
            "self._take_up(thorough=False)",
            f"{PACE}test_a_worker_that_drains_ends_with_a_full_look",
        ),
        # --- The connections ---
        (
            "the journal is opened after the claim",
            "        journal.connect()\n",
            "",
            f"{JOURNAL}test_it_is_connected_before_the_claim_begins",
        ),
        (
            "the row is decided inside a savepoint",
            "                decide(workflow, attempt, outcome)",
            "                with transaction.atomic():\n                    decide(workflow, attempt, outcome)",
            f"{MULTIXACTS}test_waits_and_their_signals_make_no_multixacts",
        ),
        # --- Waking ---
        (
            "a worker that has suspended a workflow does not look again",
            "            waking.wake(workflow.pk)\n",
            "            pass\n",
            f"{SIGNALS}test_the_workers_own_look_is_what_finds_it_when_the_sender_came_too_early",
        ),
        (
            "a worker that has ended a child does not tell its parent",
            "            inbox.notify_parent(workflow.pk)\n",
            "            pass\n",
            f"{SIGNALS}test_the_one_that_looks_second_sees_both",
        ),
        # --- The chores ---
        (
            "the chores are looked at after each workflow",
            "CHORES_EVERY = CHECK_EVERY = LOOK_EVERY = 1.0",
            "CHORES_EVERY, CHECK_EVERY, LOOK_EVERY = 0.0, 0.0, 1.0",
            f"{CHORES}test_a_worker_looks_once_a_second_what_is_due",
        ),
        (
            "nobody does the chores",
            "            chores.run()\n",
            "",
            f"{CHORES}test_a_worker_looks_once_a_second_what_is_due",
        ),
        # --- Between two steps ---
        (
            "a request to cancel is not seen between two steps",
            "            raise cancelled\n",
            "            pass\n",
            f"{CANCELLATION_REQUESTS}test_between_steps_that_make_no_call_it_is_seen_too",
        ),
        (
            "a request to cancel ends what is being undone",
            "if claim.cancelled and not workflow.compensating else",
            "if claim.cancelled else",
            f"{EFFECTS}test_a_request_to_cancel_does_not_keep_an_undo_from_being_called",
        ),
        (
            "a workflow whose time is over goes on to its next step",
            "            raise WorkflowExpired\n",
            "            pass\n",
            f"{EXPIRY}test_one_that_runs_ends_between_two_steps",
        ),
        # --- After a loss ---
        (
            "a row that is lost twice is due at once",
            "if postpone_reason or losses > 1:",
            "if postpone_reason:",
            f"{FAULTS}test_a_row_whose_steps_end_the_claim_does_not_hold_up_the_others",
        ),
        # --- Whose an error of the database is ---
        (
            "a result that only a stopping worker knows is dropped",
            "        self._write_what_is_left()\n",
            "",
            f"{REFUSED_RESULTS}test_a_worker_that_is_stopped_goes_on_trying_to_write_a_result_for_its_grace",
        ),
        (
            "the next workflow is taken while the last one has something to tell",
            "        if self._attempt:  # taking another workflow would forget it\n",
            "        if False:\n",
            f"{REFUSED_RESULTS}test_a_result_that_cannot_be_written_just_now_is_kept_and_nothing_else_is_taken",
        ),
        (
            "a loss that could not be told at once looks like a death",
            "        if self._attempt:  # forgotten",
            "        if False:  # forgotten",
            f"{REFUSALS}test_a_loss_that_could_not_be_told_at_once_is_told_before_the_next_claim",
        ),
    ),
    *in_(
        "worker/slots.py",
        (
            "a status that was half written is read",
            "            if zlib.crc32(record) == checksum:",
            "            if True:",
            f"{SLOTS}test_what_is_not_whole_is_not_read",
        ),
        (
            "a status counts before it is written",
            "        self._memory[at : at + _RECORD_SIZE] = record + _CHECKSUM.pack(zlib.crc32(record))\n"
            "        self._memory[self._start] = other\n",
            "        self._memory[self._start] = other\n"
            "        self._memory[at : at + _RECORD_SIZE] = record + _CHECKSUM.pack(zlib.crc32(record))\n",
            f"{SLOTS}test_what_was_written_before_a_death_in_the_midst_of_a_write_is_read",
            f"{SLOTS}test_nothing_torn_is_ever_read",
        ),
    ),
    *in_(
        "worker/lease.py",
        (
            "the journal waits for the claim for ever",
            '"lock_timeout": "5000"',
            '"lock_timeout": "0"',
            f"{SESSIONS}test_neither_end_waits_for_ever_for_the_other",
        ),
        (
            "the journal keeps plans that read whole tables",
            '"enable_seqscan": "off"',
            '"enable_seqscan": "on"',
            f"{LEASE}test_what_the_journal_repeats_is_prepared_and_reads_by_an_index_forever",
        ),
        (
            "the database says what a worker reads",
            'r"read\\ committed"',
            'r"repeatable\\ read"',
            f"{SESSIONS}test_a_worker_reads_what_is_committed_whatever_the_database_would_do",
        ),
        (
            "a claim may be silent for ever",
            '"idle_in_transaction_session_timeout": lease',
            '"idle_in_transaction_session_timeout": "0"',
            f"{LEASE}test_a_claim_may_be_silent_longer_than_the_longest_step",
        ),
        (
            "a claim may be at one statement for ever",
            '"statement_timeout": lease',
            '"statement_timeout": "0"',
            f"{LEASE}test_a_claim_may_be_silent_longer_than_the_longest_step",
        ),
        (
            "the server does not look whether anybody waits for a statement's result",
            '"client_connection_check_interval": "1000"',
            '"client_connection_check_interval": "0"',
            f"{SESSIONS}test_neither_end_waits_for_ever_for_the_other",
        ),
    ),
    *in_(
        "worker/sessions.py",
        (
            "a worker claims on a server that is read-only",
            "        if is_read_only:",
            "        if False:",
            f"{UNFIT}test_a_read_only_server_is_waited_for",
        ),
        (
            "a worker works behind a pooler that lends backends",
            "    if not _is_one_backend_each(*sessions):",
            "    if False:",
            f"{UNFIT}test_a_worker_refuses_it_and_names_the_cause",
        ),
        (
            "a pool that lends its backends in turns is not found out",
            "return seen == {first} and other[1]",
            "return other[1]",
            f"{UNFIT}test_a_pool_that_lends_backends_is_found_out",
        ),
        (
            "a worker works without what it has asked for",
            "    if ignored:",
            "    if False:",
            f"{UNFIT}test_what_is_asked_for_and_not_in_force_is_named",
        ),
    ),
    *in_(
        "worker/loop.py",
        (
            "a chore whose row is gone is never done again",
            "monotonic() >= self._known_at + CHORES_KNOWN_EVERY",
            'self._known_at == float("-inf")',
            f"{CHORES}test_a_chore_whose_row_is_gone_gets_another_within_a_minute",
        ),
    ),
    *in_(
        "worker/chores.py",
        (
            "what a leader has released that died before it was told is released again",
            "    with transaction.atomic(durable=True):\n        due = _lock_due()",
            "    if True:\n        due = _lock_due()",
            f"{LEADERS}test_the_next_one_releases_as_many_and_no_more",
        ),
        (
            "two workers do a chore at once",
            "LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) due",
            "LIMIT 1) due",
            f"{CHORES}test_one_worker_of_all_does_the_chores",
        ),
        (
            "a chore that is not due is done",
            "                  AND NOT due_at BETWEEN clock_timestamp()"
            " AND clock_timestamp() + make_interval(secs => %(far)s)\n",
            "                  AND %(far)s > 0\n",
            f"{CHORES}test_a_chore_that_was_done_is_due_a_second_later_for_all",
        ),
        (
            "a chore waits for a clock that was set back",
            "NOT due_at BETWEEN clock_timestamp() AND clock_timestamp() + make_interval(secs => %(far)s)",
            "due_at <= clock_timestamp() AND %(far)s > 0",
            f"{CHORES}test_a_time_that_a_clock_has_left_far_ahead_keeps_no_chore_from_being_done",
        ),
        (
            "a slice may take for ever",
            "set_config('statement_timeout', %(timeout)s, true)",
            "set_config('application_name', %(timeout)s, true)",
            f"{CHORES}test_a_slice_that_takes_too_long_is_ended_by_the_server",
        ),
        (
            "a worker that is stopped in a slice keeps the chore from all others",
            "set_config('idle_in_transaction_session_timeout', %(silence)s, true)",
            "%(silence)s",
            f"{CHORES}test_a_worker_that_is_stopped_in_a_slice_keeps_the_chore_from_nobody",
        ),
        (
            "the claim has the chores' timeout ever after",
            "%(timeout)s, true)",
            "%(timeout)s, false)",
            f"{CHORES}test_a_slice_that_takes_too_long_is_ended_by_the_server",
        ),
        (
            "a chore that finds nothing does not rest",
            "min(took * REST, AFTER_FAILURE)",
            "0.0",
            f"{CHORES}test_a_slice_that_changes_nothing_rests_twenty_times_as_long_as_it_took",
        ),
        (
            "a slow chore rests for hours",
            "min(took * REST, AFTER_FAILURE)",
            "took * REST",
            f"{CHORES}test_no_chore_rests_for_longer_than_one_that_failed",
        ),
        (
            "what is found is woken a slice a second",
            "0.0 if changed else min(",
            "min(",
            f"{CHORES}test_a_slice_that_has_changed_something_is_followed_by_the_next_at_once_but_not_for_ever",
        ),
        (
            "a worker does chores for ever",
            "while monotonic() < until and _run_slice():",
            "while _run_slice():",
            f"{CHORES}test_a_slice_that_has_changed_something_is_followed_by_the_next_at_once_but_not_for_ever",
        ),
        (
            "each round begins where it began",
            "SET after = %(after)s, due_at",
            "SET after = 0 * %(after)s, due_at",
            f"{CHORES}test_a_slice_that_changes_nothing_rests_twenty_times_as_long_as_it_took",
        ),
        (
            "a failure of one chore stops all",
            "            _fail(name, error)\n            return True\n",
            "            raise\n",
            f"{CHORES}test_a_chore_that_fails_is_logged_and_tried_again_a_minute_later_and_stops_no_other",
        ),
        (
            "a lost connection is a chore's failure",
            "            if not connection.is_usable():\n                raise\n",
            "",
            f"{CHORES}test_a_chore_that_loses_the_connection_is_the_loops_business",
        ),
        (
            "a chore fails since its last failure",
            "failing_since = coalesce(failing_since, clock_timestamp())",
            "failing_since = clock_timestamp()",
            f"{CHORES}test_since_when_a_chore_fails_stands_with_it_until_it_succeeds",
        ),
        (
            "a chore that succeeds is failing still",
            "                  failing_since = NULL, error = ''\n",
            "                  error = error\n",
            f"{CHORES}test_since_when_a_chore_fails_stands_with_it_until_it_succeeds",
        ),
        (
            "nobody wakes what has taken too long",
            '    "wake expired": Chore(waking.wake_expired),\n',
            "",
            f"{EXPIRY}test_one_that_waits_is_woken_when_its_time_is_over_and_undone",
        ),
        (
            "nobody wakes a parent whose child's worker has died",
            '    "wake parents": Chore(waking.wake_parents),\n',
            "",
            f"{CHILDREN}test_a_worker_that_dies_before_it_could_tell_the_parent_loses_nothing",
        ),
        (
            "what came too late is not put aside",
            '    "ignore late signals": Chore(inbox.ignore_late_signals),\n',
            "",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_one_that_comes_in_the_moment_of_the_end_is_put_aside_by_the_chores",
        ),
    ),
]
