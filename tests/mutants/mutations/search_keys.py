"""Search keys: that they are stored, for every way in, and say nothing; who may look, and that it is on record."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import SEARCH_KEYS

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
]
