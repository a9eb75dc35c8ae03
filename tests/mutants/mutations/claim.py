"""The claim: which row a worker takes next, and how it locks the row."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    CLAIM,
    CLAIMING,
    ORDER,
    PACE,
    UNDO,
)

MUTANTS: list[Mutant] = [
    *in_(
        "worker/claim.py",
        # --- The claim ---
        (
            "a worker waits for the row that another one holds",
            "FOR NO KEY UPDATE SKIP LOCKED) {pool}",
            "FOR NO KEY UPDATE) {pool}",
            f"{CLAIM}test_two_claims_at_the_same_moment_are_of_two_rows",
        ),
        (
            "a claim locks nothing",
            " LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) {pool}",
            " LIMIT 1) {pool}",
            f"{CLAIM}test_two_claims_at_the_same_moment_are_of_two_rows",
        ),
        (
            "what refers to the row waits for its claim",
            "FOR NO KEY UPDATE SKIP LOCKED) {pool}",
            "FOR UPDATE SKIP LOCKED) {pool}",
            f"{PACE}test_what_refers_to_a_row_need_not_wait_for_its_claim",
        ),
        (
            "the oldest row first, and not the oldest due time",
            "ORDER BY invisible_until, id LIMIT",
            "ORDER BY id LIMIT",
            f"{PACE}test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids",
        ),
        (
            "rows that are due at the same time in any order",
            "ORDER BY invisible_until, id LIMIT",
            "ORDER BY invisible_until LIMIT",
            f"{PACE}test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids",
        ),
        (
            "a worker takes another queue's rows",
            "AND queue = %(queue)s AND",
            "AND (true OR queue = %(queue)s) AND",
            f"{CLAIMING}test_it_says_that_nothing_is_due",
        ),
        (
            "the pool for compensation takes everything",
            '["compensating"] if only',
            '["begun", "fresh"] if only',
            f"{UNDO}test_a_pool_of_its_own_takes_nothing_else",
        ),
        (
            "the watermark passes over rows that are due at the same time",
            "(invisible_until, id) >= (%({pool}_due)s::timestamptz, %({pool}_id)s::bigint)",
            "(invisible_until, id) > (%({pool}_due)s::timestamptz, %({pool}_id)s::bigint + 1000000000)",
            f"{PACE}test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids",
        ),
        # --- What has begun, and what has not ---
        (
            "what has begun goes first all of the time",
            "if (self._claims + 1) % FRESH_EVERY == 0 else",
            "if False else",
            f"{ORDER}test_three_of_four_claims_are_of_what_has_begun",
        ),
        (
            "what has not begun is found by walking over what has",
            '"fresh": "NOT begun"',
            '"fresh": "NOT coalesce(begun, false)"',
            f"{CLAIM}test_neither_pool_is_walked_over_for_the_sake_of_the_other",
        ),
        (
            "what has begun is found by walking over what has not",
            '{"begun": "begun"',
            '{"begun": "coalesce(begun, false)"',
            f"{CLAIM}test_neither_pool_is_walked_over_for_the_sake_of_the_other",
        ),
        (
            "a look that finds nothing keeps the watermark",
            '            self._watermarks[pool] = (looked_at.isoformat(), "0")\n',
            "",
            f"{CLAIM}test_an_idle_worker_does_not_walk_over_what_the_others_drain",
        ),
        (
            "a look that finds nothing is believed of what is not committed yet",
            "now() - interval '{SEEN_AFTER}' AS looked_at",
            "now() AS looked_at",
            f"{PACE}test_an_idle_worker_finds_what_is_seen_later_than_it_was_due",
        ),
        # --- Full looks ---
        (
            "each look is a full one",
            "        self._full_look_at, self._luck = monotonic(), random.expovariate(1)\n",
            "",
            f"{PACE}test_it_looks_from_the_oldest_due_row_four_times_a_second_and_not_more_often",
        ),
        (
            "a full look every 1.5 s",
            "FULL_LOOK_EVERY = 0.25",
            "FULL_LOOK_EVERY = 1.5",
            f"{PACE}test_it_looks_from_the_oldest_due_row_four_times_a_second_and_not_more_often",
        ),
        (
            "a full look is one of the pool that it finds something in",
            "        self._watermarks.clear()\n        return self._look()",
            "        before, self._watermarks = self._watermarks, {}\n"
            "        claim = self._look()\n"
            "        self._watermarks = {**before, **self._watermarks}\n"
            "        return claim",
            f"{PACE}test_both_pools_are_looked_at_in_full",
        ),
        (
            "each worker looks in full as if it were alone",
            "(1 + (self.live_workers - 1) * self._luck)",
            "1",
            f"{PACE}test_four_workers_share_the_full_looks",
        ),
        (
            "no full look when nothing is due ahead of the watermark",
            "if claim or not thorough:",
            "if True:",
            f"{CLAIMING}test_the_watermark_does_not_hide_what_becomes_due_behind_it",
        ),
        (
            "each look that finds nothing is followed by a full one",
            "if claim or not thorough:",
            "if claim:",
            f"{PACE}test_four_workers_share_the_full_looks",
        ),
    ),
]
