"""How idle workers learn of what is new."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_

LISTENING = "workflows/worker/test_listening.py::"
ANNOUNCING = "workflows/test_announcing.py::"

MUTANTS: list[Mutant] = [
    *in_(
        "worker/listening.py",
        (
            "a busy worker is told of everything that is submitted",
            '                journal.execute(f"UNLISTEN {CHANNEL}", ())',
            "                pass",
            f"{LISTENING}test_a_worker_that_is_busy_does_not_listen",
        ),
        (
            "a worker is woken by what other queues have",
            "self._heard |= notify.extra.decode() == self._queue",
            "self._heard = True",
            f"{LISTENING}test_another_queue_is_none_of_its_business[other]",
        ),
        (
            "what comes with the answer to a statement is not heard",
            "        self._session.add_notify_handler(self._hear)\n",
            "        self._session.add_notify_handler(id)\n",
            f"{LISTENING}test_so_does_what_came_with_the_answer_to_a_statement",
        ),
        (
            "a submission wakes all idle workers each time",
            "if self._heard and deaf <= 0:",
            "if self._heard:",
            f"{LISTENING}test_where_many_are_idle_an_announcement_does_not_wake_all_of_them_each_time",
        ),
        (
            "a new session is not listened on",
            "elif self._session is None or self._session is not connections[journal.ALIAS].connection:",
            "elif self._session is None:",
            f"{LISTENING}test_a_new_session_listens_again",
        ),
        (
            "after an announcement the next look is as far away as ever",
            "            self._heard = False\n            self._delay.reset()\n",
            "            self._heard = False\n",
            f"{LISTENING}test_an_announcement_begins_the_delays_anew",
        ),
        (
            "a worker that was busy does not listen any more",
            "            listened, self._session = self._session, None",
            "            listened = self._session",
            f"{LISTENING}test_an_idle_worker_takes_up_what_is_announced",
        ),
    ),
    *in_(
        "stop_flag.py",
        (
            "a worker that listens is not told to stop",
            "        both.register(self._pipe[0], select.POLLIN)\n",
            "",
            f"{LISTENING}test_one_that_is_told_to_stop_rests_no_more",
        ),
    ),
    *in_(
        "announcing.py",
        (
            "every process announces what it stores",
            "    if not _begun:\n",
            "    if False:\n",
            f"{ANNOUNCING}test_a_process_that_has_not_begun_announces_nothing",
        ),
        (
            "nothing is announced after a failure",
            "                connection.close()\n                pause",
            "                return\n                pause",
            f"{ANNOUNCING}test_it_goes_on_after_its_session_was_ended",
        ),
        (
            "a submission fails, though it is stored, for want of a thread",
            "                except RuntimeError as error:",
            "                except LookupError as error:",
            f"{ANNOUNCING}test_what_cannot_be_announced_for_want_of_a_thread_is_stored_all_the_same",
        ),
        (
            "each submission is announced by itself",
            "            sleep(pause)\n",
            "",
            f"{ANNOUNCING}test_two_announcements_are_apart",
        ),
    ),
    *in_(
        "submissions.py",
        (
            "a submission is not announced",
            "    announcing.announce(definition.queue)\n",
            "",
            f"{ANNOUNCING}test_a_submission_is_announced_once",
        ),
    ),
]
