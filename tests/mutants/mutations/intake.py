"""The intake's groups: nobody pays for a neighbour, and nobody is answered too early."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import GROUP, GROUPS, INTAKE_CONNECTIONS, QUARANTINE

MUTANTS: list[Mutant] = [
    *in_(
        "intake/group.py",
        (
            "two processes lock the same keys in different orders",
            "sorted(rows, key=lambda row: row.key.int)",
            "list(rows)",
            f"{GROUP}test_all_that_waits_goes_together_in_the_order_of_the_keys",
        ),
        (
            "the same key is twice in a group",
            "                if row.key in taken:\n                    later.append(row)\n                elif",
            "                if",
            f"{GROUP}test_the_second_of_two_equal_keys_waits_for_the_next_group",
            f"{GROUPS}test_the_same_submission_twice_at_once_is_stored_once",
        ),
        (
            "what nobody waits for any more is stored",
            "            if not row.is_answered:\n                if",
            "            if True:\n                if",
            f"{GROUP}test_what_is_answered_already_is_dropped",
        ),
        (
            "a group has any size",
            "elif taken and held + row.size > size:",
            "elif False:",
            f"{GROUP}test_large_ones_wait_for_the_next_group_and_one_that_is_too_large_goes_alone",
        ),
        (
            "a group waits for a held key for as long as that takes",
            "SELECT set_config('lock_timeout', %(patience)s, true)",
            "SELECT %(patience)s::text",
            f"{QUARANTINE}test_a_key_that_another_transaction_holds_holds_up_nobody_else",
        ),
        (
            "a submission has the search keys of its neighbours",
            "           USING (idempotency_key))",
            "           ON true)",
            f"{GROUPS}test_each_has_its_own_search_keys",
        ),
    ),
    *in_(
        "intake/groups.py",
        (
            "a row that PostgreSQL refuses takes its group with it",
            "            elif len(group) == 1:\n",
            "            elif True:\n",
            f"{GROUPS}test_a_row_that_postgresql_refuses_harms_none_of_its_neighbours",
        ),
        (
            "a key that was held is tried in a group again",
            "        if self._quarantine.knows(row.key):\n",
            "        if False:\n",
            f"{QUARANTINE}test_a_key_that_is_held_for_too_long_is_503_and_holds_up_no_group_when_it_is_sent_again",
        ),
        (
            "any number of submissions may wait",
            "self._rows >= self._most_rows or ",
            "",
            f"{GROUPS}test_more_than_may_wait_is_refused_at_once_and_taken_later",
        ),
        (
            "any number of bytes may wait",
            " or self._bytes + row.size > self._most_bytes:",
            ":",
            f"{GROUPS}test_more_bytes_than_may_wait_are_refused",
        ),
        (
            "what was answered goes on counting as waiting",
            "            self._rows -= 1\n",
            "",
            f"{GROUPS}test_more_than_may_wait_is_refused_at_once_and_taken_later",
        ),
    ),
    *in_(
        "intake/quarantine.py",
        (
            "those whose key is free wait behind the one that is held",
            "(self._new.popleft(), FIRST_PATIENCE) if self._new else (self._held.popleft(), PATIENCE)",
            "(self._held.popleft(), 9) if self._held else (self._new.popleft(), 9)",
            f"{QUARANTINE}test_a_key_that_another_transaction_holds_holds_up_nobody_else",
        ),
        (
            "what was answered is stored later",
            "            if row.is_answered:\n                continue\n",
            "",
            f"{QUARANTINE}test_what_was_answered_that_it_is_not_stored_is_not_stored_later",
        ),
        (
            "a key is remembered though its submission is stored",
            "                self._known.pop(row.key, None)\n",
            "                pass\n",
            f"{QUARANTINE}test_a_key_that_was_held_is_forgotten_once_its_submission_is_stored",
        ),
        (
            "a key is remembered for ever",
            "        if until > asyncio.get_running_loop().time():\n",
            "        if True:\n",
            f"{QUARANTINE}test_and_else_after_a_minute",
        ),
        (
            "any number of keys is remembered",
            "            self._known.clear()\n",
            "            pass\n",
            f"{QUARANTINE}test_no_more_keys_are_remembered_than_there_is_room_for",
        ),
    ),
    *in_(
        "intake/link.py",
        (
            "a row that is too large for the server harms its neighbours",
            'ABOUT_VALUES = ("22", "23", "54")',
            'ABOUT_VALUES = ("22", "23")',
            f"{GROUPS}test_what_the_server_may_take_later_harms_none_of_its_neighbours",
        ),
        (
            "a deadlock harms a whole group",
            'IN_THE_WAY = ("55P03", "40P01")',
            'IN_THE_WAY = ("55P03",)',
            f"{GROUPS}test_what_the_server_may_take_later_harms_none_of_its_neighbours",
        ),
        (
            "a connection that has died is used once more, and for good",
            "            if not reused or",
            "            if True or",
            f"{GROUPS}test_a_connection_that_has_died_is_replaced_and_nobody_notices",
        ),
        (
            "a silent server is waited for",
            "timeout=deadline - loop.time())\n        finally:",
            "timeout=None)\n        finally:",
            f"{GROUPS}test_a_statement_that_is_not_answered_in_time_is_given_up_and_so_is_its_connection",
        ),
        (
            "a session of the intake is told nothing",
            "SET TIME ZONE 'UTC'; {session_settings.sql(DEFAULT_DB_ALIAS)}",
            "SELECT 1",
            f"{GROUPS}test_its_sessions_are_told_what_all_sessions_are_told",
        ),
    ),
    *(
        Mutant(why, "config/asgi_server.py", old, new, (f"tests/{INTAKE_CONNECTIONS}{test}",))
        for why, old, new, test in (
            (
                "a client that has closed its half gets no answer",
                "        return not self._closed\n",
                "        return False\n",
                "test_a_client_that_has_closed_its_half_gets_its_answer_and_leaves_nothing_open",
            ),
            (
                "an address has any number of connections",
                "0 < self.most_of_address <= self.of_address[address]",
                "False",
                "test_an_address_has_so_many_connections_and_no_more",
            ),
            (
                "a process that is told to stop waits for idle clients",
                "                if connection.is_idle:\n",
                "                if False:\n",
                "test_on_sigterm_each_request_that_was_sent_is_answered_and_idle_clients_are_not_waited_for",
            ),
            (
                "there is no room for one more while others are idle",
                "        idle.close_idle()\n        return None",
                '        return HTTPStatus.SERVICE_UNAVAILABLE, "overloaded"',
                "test_when_there_is_no_room_an_idle_connection_makes_it_and_one_in_use_does_not",
            ),
        )
    ),
]
