"""The console: what each group may do, what a form does by itself, and what of a patient's data is seen."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import (
    ATTEMPT_LISTS,
    CANARIES,
    HELD_ROWS,
    HISTORIES,
    MASKS,
    OPERATIONS,
    RACES,
    SERVICES,
    UNTOUCHED,
    WALK,
)

_TABLE = f"{WALK}test_everybody_gets_what_the_table_says"
_SLIPS = f"{UNTOUCHED}test_an_untouched_form_does_nothing_that_needs_a_decision_or_a_reason"
_METRICS = "workflows/api/test_metrics.py::"
_NO_PAGE = f"{CANARIES}test_no_page_shows_one_to_anybody"
_NO_LINE = f"{CANARIES}test_no_log_line_and_nothing_that_people_are_shown_holds_one"

MUTANTS: list[Mutant] = [
    *in_(
        "operations/guards.py",
        (
            "an operation waits for its row as long as it takes",
            "SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'",
            "SET LOCAL lock_timeout = 0",
            f"{SERVICES}test_a_row_that_another_session_keeps_is_waited_for_and_not_for_long",
            f"{HELD_ROWS}test_every_form_is_answered_in_time_while_rows_are_held",
        ),
        (
            "an operation that has waited long enough is an error of ours",
            "            raise NotAllowed(busy) from error\n",
            "            raise\n",
            f"{HELD_ROWS}test_every_form_is_answered_in_time_while_rows_are_held",
        ),
    ),
    *in_(
        "admin/base.py",
        (
            "the page of a verb is for everybody who sees its row",
            "        if not verb.is_for(request.user):\n",
            "        if False:\n",
            _TABLE,
        ),
        (
            "a reason is optional",
            'None for several rows."""\n\n    reason = forms.CharField(\n',
            'None for several rows."""\n\n    reason = forms.CharField(\n        required=False,\n',
            _SLIPS,
        ),
    ),
    *in_(
        "admin/manual_task.py",
        (
            "whoever sees a task has the buttons of those who decide it",
            "        if not _may_decide(request.user):\n",
            "        if False:\n",
            "workflows/admin/test_decisions.py::test_who_may_decide_nothing_is_refused_before_the_form_is_read",
        ),
    ),
    *in_(
        "admin/attempts.py",
        (
            "an attempt that called something is folded away",
            "did == [(True, StepOutcome.WAITING)]",
            "bool(did)",
            f"{ATTEMPT_LISTS}test_what_has_reversed_or_called_anything_is_never_folded",
            f"{ATTEMPT_LISTS}test_one_that_reversed_something_and_then_waits_is_never_folded",
        ),
        (
            "an attempt that ended in another way is folded away",
            "return attempt.outcome == Attempt.Outcome.WAITING and did ==",
            "return did ==",
            f"{ATTEMPT_LISTS}test_what_has_reversed_or_called_anything_is_never_folded",
        ),
        (
            "a look that failed is folded away",
            "return all(map(_is_a_look, both)) and _without_time(attempt) == _without_time(later.attempt)",
            "return all(map(_is_a_look, both))",
            f"{ATTEMPT_LISTS}test_one_that_found_something_else_has_a_line_of_its_own",
        ),
    ),
    *in_(
        "admin/steps.py",
        (
            "an error that nobody has words for loses its message",
            'if known else (_recorded(recorded), "")',
            'if known else ("Something failed.", "")',
            f"{HISTORIES}test_an_error_that_nobody_has_words_for_is_told_as_it_was_recorded",
        ),
    ),
    *in_(
        "admin/words.py",
        (
            "what a sender made up is shown below a public field",
            "shown=name == key and (shown or inner in public)",
            "shown=shown or inner in public",
            f"{MASKS}test_a_name_that_the_sender_made_up_is_not_shown_nor_what_is_below_it",
        ),
        (
            "every value is shown",
            "    if shown and is_plain:\n",
            "    if is_plain:\n",
            f"{MASKS}test_a_value_is_shown_where_the_definition_calls_it_public",
            _NO_PAGE,
        ),
        (
            "a part is made of whatever was sent",
            "cut(part(data)) if part and is_text_or_number(data) else MASK",
            "cut(part(data)) if part else MASK",
            f"{MASKS}test_a_part_is_made_of_texts_and_numbers_only",
        ),
    ),
    *in_(
        "admin/patient.py",
        (
            "whatever was sent in the place of a field verifies a caller",
            "for field, value in values if words.is_text_or_number(value)",
            "for field, value in values",
            f"{MASKS}test_a_caller_is_verified_by_texts_and_numbers_only",
        ),
    ),
    *in_(
        "waits/signal.py",
        (
            "an error repeats what a signal told",
            '            attempt.told.append(signal["payload"])\n',
            "",
            _NO_PAGE,
            _NO_LINE,
        ),
    ),
    *in_(
        "operations/tasks.py",
        (
            "of two decisions the second counts, too",
            "        if not decided:\n            raise NotAllowed(why_not_decide(task, user) or CHANGED)\n",
            "",
            f"{RACES}test_of_two_at_once_the_first_wins_and_the_other_is_told",
        ),
    ),
    *in_(
        "admin/workflow.py",
        (
            "of many that are retried those that have failed anew are, too",
            "seen=seen.get(pk, ())",
            "seen=()",
            "workflows/admin/test_verbs.py::test_retry_selected_leaves_alone_what_has_failed_anew_since_the_page_was_shown",
        ),
    ),
    *in_(
        "operations/workflows.py",
        (
            "a failure that was not seen is retried",
            "        if not _is_seen(workflow, seen):\n",
            "        if False:\n",
            f"{RACES}test_a_retry_from_the_page_of_an_earlier_failure_does_nothing_and_says_so",
        ),
        (
            "a retry that is refused has started the children again",
            "    if parent is None or not _is_seen(parent, seen):\n",
            "    if parent is None:\n",
            f"{OPERATIONS}test_retry_refuses_an_end_that_the_user_was_not_shown_and_starts_no_child_again",
        ),
    ),
    *in_(
        "api/metrics.py",
        (
            "a server without a token tells its metrics to everybody",
            "        if settings.DEBUG:\n",
            "        if True:\n",
            f"{_METRICS}test_a_server_without_a_token_tells_nobody",
        ),
        (
            "any token opens the metrics",
            "not constant_time_compare(token.strip(), settings.METRICS_TOKEN)",
            "not token",
            f"{_METRICS}test_and_nobody_else",
        ),
    ),
    Mutant(
        "the log repeats what an exception says",
        "config/logs.py",
        'return frames(ei[1]) if ei[1] else ""',
        "return super().formatException(ei)",
        ("tests/config/test_errors.py::test_the_log_says_what_it_was_and_where_and_never_what_it_was_about",),
    ),
    Mutant(
        "the body of a form that is too large is read",
        "config/uploads.py",
        "        if content_length > (settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0):\n",
        "        if False:\n",
        ("tests/config/test_console.py::test_no_form_takes_a_file_nor_more_than_a_form_has",),
    ),
]
