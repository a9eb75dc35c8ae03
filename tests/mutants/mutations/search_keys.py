"""Search keys: that they are stored, for every way in, and say nothing; who may look, and that it is on record."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import FIND, SEARCH_KEY_ROWS, SEARCH_KEYS

# The end of statements.fetch_all.
_FETCHES_ALL = "connection.connection) as cursor:\n        return cursor.execute(sql, parameters).fetchall()"

MUTANTS: list[Mutant] = [
    *in_(
        "submissions.py",
        (
            "a submission is stored without its search keys",
            "    if not hashes:\n",
            "    if True:\n",
            f"{SEARCH_KEYS}test_a_submission_is_found_by_each_of_its_search_keys",
            f"{SEARCH_KEYS}test_a_workflow_that_is_started_by_its_business_key_has_them_too",
        ),
    ),
    *in_(
        "waits/children.py",
        (
            "a child is stored with the search keys of another",
            "                   USING (child_key),\n",
            "                   ON true,\n",
            f"{SEARCH_KEYS}test_each_child_has_its_own",
        ),
    ),
    *in_(
        "search_keys.py",
        (
            "a phone number is found that is another workflow's e-mail address",
            'f"{kind}\\0{normalised}"',
            'f"{normalised}"',
            f"{SEARCH_KEYS}test_a_kind_is_part_of_its_hash",
        ),
        (
            "a submission is refused for its author's mistake",
            "        except Exception as error:  # its message may hold the value\n",
            "        except LookupError as error:  # its message may hold the value\n",
            f"{SEARCH_KEYS}test_an_author_s_mistake_refuses_nobody_and_the_log_holds_no_value",
        ),
        (
            "a log line quotes the value",
            "self.field, type(error).__name__)",
            "self.field, error)",
            f"{SEARCH_KEYS}test_an_author_s_mistake_refuses_nobody_and_the_log_holds_no_value",
        ),
        (
            "a value of any length is normalised",
            " or len(value) > LONGEST_TEXT:",
            ":",
            f"{SEARCH_KEYS}test_what_cannot_be_normalised_gets_no_key_and_is_taken_as_any_other",
        ),
        (
            "only the first key is searched",
            "for key in keys() for each in readings",
            "for key in keys()[:1] for each in readings",
            f"{SEARCH_KEYS}test_the_first_key_writes_and_all_are_searched",
        ),
    ),
    *in_(
        "search_key_rows.py",
        (
            "the keys that a process writes with the old one meanwhile are removed",
            "known IS NULL OR known AND old.workflow_id <= %(newest)s)",
            "known IS NULL OR known)",
            f"{SEARCH_KEY_ROWS}test_what_a_process_has_written_with_the_old_key_meanwhile_stays_and_is_told",
        ),
        (
            "the keys of a type that is unknown here are removed",
            "known IS NULL OR known AND old.workflow_id <= %(newest)s)",
            "known IS NULL OR old.workflow_id <= %(newest)s)",
            f"{SEARCH_KEY_ROWS}test_keys_of_a_type_that_is_unknown_here_stay_and_are_told",
        ),
        (
            "the keys of the key that writes are removed",
            "         WHERE key_id <> %(key_id)s),\n",
            "         WHERE true),\n",
            f"{SEARCH_KEY_ROWS}test_a_key_is_rotated_without_a_gap",
        ),
        (
            "a number is a search key once the rows are filled",
            "CASE jsonb_typeof(payload #> %s::text[]) WHEN 'string' THEN {text} END",
            "CASE WHEN payload #> %s::text[] IS NOT NULL THEN {text} END",
            f"{SEARCH_KEY_ROWS}test_it_gives_exactly_what_the_intake_gives",
        ),
    ),
    *in_(
        "find.py",
        (
            "an e-mail address is sent to the database",
            "    if only_as_hash:\n",
            "    if False:\n",
            f"{FIND}test_what_was_typed_stands_in_no_statement",
            f"{FIND}test_what_reads_as_an_email_address_is_looked_for_as_nothing_else",
        ),
        (
            "a search is on record only if it finds something",
            "    Search.objects.create(",
            "    found and Search.objects.create(",
            f"{FIND}test_a_search_is_on_record_by_kind_and_never_by_what_was_typed",
        ),
    ),
    *in_(
        "postgres/statements.py",
        (
            "what was typed stands in the statement's text",
            f"psycopg.Cursor({_FETCHES_ALL}",
            f"psycopg.ClientCursor({_FETCHES_ALL}",
            f"{FIND}test_what_was_typed_stands_in_no_statement",
        ),
    ),
    *in_(
        "admin/find.py",
        (
            "anybody of the staff may search",
            "    if not request.user.has_perm(PERMISSION):\n",
            "    if False:\n",
            f"{FIND}test_who_may_see_workflows_may_find_them_and_nobody_else",
        ),
        (
            "an error report shows what was typed",
            '@sensitive_post_parameters("q")\n',
            "",
            f"{FIND}test_an_error_report_hides_what_was_typed",
        ),
    ),
]
