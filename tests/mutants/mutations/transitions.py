"""The columns of the schedule, each of which every transition says."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import ORDER, SIGNALS_NOBODY_WAITS_FOR, TRANSITIONS, TWO_AT_ONCE, WAKERS

MUTANTS: list[Mutant] = [
    *in_(
        "transitions.py",
        (
            "what is at rest is made due",
            'filter(pk=workflow_id, status="PENDING", invisible_until__gt=Now())',
            "filter(pk=workflow_id, invisible_until__gt=Now())",
            f"{TRANSITIONS}test_a_row_that_is_due_or_at_rest_is_not_made_due",
        ),
        (
            "what is due loses its place when it is made due",
            'status="PENDING", invisible_until__gt=Now())',
            'status="PENDING")',
            f"{TRANSITIONS}test_a_row_that_is_due_keeps_its_place",
        ),
        (
            "the sender waits for the worker that holds the row",
            "FOR NO KEY UPDATE OF w SKIP LOCKED)",
            "FOR NO KEY UPDATE OF w)",
            f"{TWO_AT_ONCE}test_a_decision_does_not_wait_for_the_worker_that_holds_the_row",
        ),
        (
            "what has ended is woken",
            "WHERE {condition} AND w.status = 'PENDING' AND (w.inv",
            "WHERE {condition} AND (w.inv",
            f"{WAKERS}test_nobody_wakes_what_has_ended",
        ),
        (
            "what is due is written anew at each look",
            " AND (w.invisible_until > now() OR NOT w.begun)\n                   FOR",
            "\n                   FOR",
            f"{WAKERS}test_nobody_wakes_what_is_due",
        ),
        (
            "what is due already stays behind the backlog when it is woken",
            "(w.invisible_until > now() OR NOT w.begun)",
            "w.invisible_until > now()",
            f"{WAKERS}test_what_is_due_already_goes_before_the_backlog_when_it_is_woken_and_stays_due_since_then",
        ),
        (
            "what is woken goes behind the backlog",
            "least(invisible_until, statement_timestamp()), begun = true\n",
            "least(invisible_until, statement_timestamp())\n",
            f"{WAKERS}test_what_is_due_already_goes_before_the_backlog_when_it_is_woken_and_stays_due_since_then",
        ),
        (
            "what is due already is due anew when it is woken",
            "least(invisible_until, statement_timestamp()), begun = true\n",
            "clock_timestamp(), begun = true\n",
            f"{WAKERS}test_what_is_due_already_goes_before_the_backlog_when_it_is_woken_and_stays_due_since_then",
        ),
        (
            "what is woken is due since its creation",
            "least(invisible_until, statement_timestamp()), begun = true\n",
            "least(created_at, clock_timestamp()), begun = true\n",
            f"{WAKERS}test_what_is_woken_is_due_since_then",
        ),
        (
            "what is run now goes behind the backlog",
            "later.update(invisible_until=AT_ONCE, begun=True)",
            "later.update(invisible_until=AT_ONCE)",
            f"{ORDER}test_run_now_puts_it_before_the_backlog",
        ),
        (
            "what no release knows goes before the backlog",
            "waiting_for=release_awaited(workflow_type), begun=UNCHANGED)",
            "waiting_for=release_awaited(workflow_type))",
            f"{ORDER}test_what_no_release_knows_waits_its_turn",
        ),
        (
            "what a clock that was ahead has made sleeps on when it is woken",
            "least(invisible_until, statement_timestamp()), begun = true\n",
            "created_at, begun = true\n",
            f"{WAKERS}test_what_a_clock_that_was_ahead_has_stored_is_due_when_it_is_woken",
        ),
        (
            "a row that is gone is decided",
            ".update(**columns) != 1:",
            ".update(**columns) < 0:",
            f"{TRANSITIONS}test_a_row_that_is_gone_is_not_written",
        ),
        (
            "what a workflow listened to before wakes its retries",
            "        **awaited._asdict(),",
            "        **{name: value for name, value in awaited._asdict().items() if value},",
            f"{WAKERS}test_what_it_listened_to_before_does_not_wake_its_retry",
        ),
        (
            "a signal wakes what is put off",
            "        **awaited._asdict(),",
            "        **{name: value for name, value in awaited._asdict().items() if value},",
            f"{SIGNALS_NOBODY_WAITS_FOR}test_a_signal_does_not_wake_what_is_put_off_because_its_claim_is_lost_again_and_again",
        ),
    ),
]
