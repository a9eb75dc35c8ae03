"""The pages of the console's lists: the direction of a page, ties, and where it begins."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import HOME, LISTS, PAGING

MUTANTS: list[Mutant] = [
    *in_(
        "admin/paging.py",
        (
            "the next page goes back",
            "if order[0].descending else TupleGreaterThan",
            "if not order[0].descending else TupleGreaterThan",
            f"{PAGING}test_next_leads_through_every_row_once_and_previous_back_through_the_same_pages",
        ),
        (
            "of rows at one time those of the next page are left out",
            "return TupleLessThan(keys, tuple(place)) if",
            "keys, place = Tuple(F('key_0')), place[:1]\n    return TupleLessThan(keys, tuple(place)) if",
            f"{PAGING}test_the_inbox_goes_by_due_time_and_then_by_number",
        ),
        (
            "the last page is read from the start",
            "found = _ids(arms, _reversed(order), None, size + 1)",
            "found = _ids(arms, order, None, size + 1)",
            f"{PAGING}test_the_last_page_is_full_and_leads_back",
        ),
        (
            "the previous page stands on its head",
            "Page(found[:size][::-1], has_earlier=True, has_later=True)",
            "Page(found[:size], has_earlier=True, has_later=True)",
            f"{PAGING}test_next_leads_through_every_row_once_and_previous_back_through_the_same_pages",
        ),
        (
            "a page before the first ones is short",
            "            if len(found) > size:\n",
            "            if found:\n",
            f"{PAGING}test_a_place_behind_all_rows_gives_the_last_page_and_one_before_all_the_first",
        ),
        (
            "behind the last row there is an empty page",
            "            before = END  # what came after that row is gone\n",
            "            return Page([])\n",
            f"{PAGING}test_a_place_behind_all_rows_gives_the_last_page_and_one_before_all_the_first",
        ),
        (
            "a full last page promises another one",
            "if found := _ids(arms, order, place, size + 1):",
            "if found := _ids(arms, order, place, size + 1) * 2:",
            f"{PAGING}test_each_page_offers_just_the_pages_that_there_are",
        ),
        (
            "what is no number is an error of ours",
            "not text.isdecimal() or len(text) > 18",
            "not text",
            f"{PAGING}test_a_bad_place_gives_a_page_of_the_list",
        ),
        (
            "a row without a place in the order is a place",
            "return row if row and None not in row else None",
            "return row",
            f"{PAGING}test_a_row_that_is_not_in_the_order_gives_the_first_page",
        ),
        (
            "a filter begins in the midst of its list",
            "super().get_query_string(new_params, [*(remove or []), AFTER, BEFORE])",
            "super().get_query_string(new_params, remove)",
            f"{PAGING}test_a_page_keeps_the_filter_and_a_filter_begins_at_the_first_page",
        ),
        (
            "a row of several arms is listed several times",
            "first.union(*others)",
            "first.union(*others, all=True)",
            f"{PAGING}test_what_needs_attention_for_several_reasons_is_listed_and_counted_once",
        ),
        (
            "the arms are listed one after the other",
            "found = found.order_by(*by)[:limit]",
            "found = found[:limit]",
            f"{PAGING}test_what_needs_attention_for_several_reasons_is_listed_and_counted_once",
        ),
        (
            "what is on one page is counted",
            "self._count(arms) if self.page.has_earlier or self.page.has_later else len(self.page.ids)",
            "self._count(arms)",
            f"{PAGING}test_a_list_that_fits_on_a_page_is_not_counted",
        ),
        (
            "what is shown is computed for all rows",
            ".order_by().filter(pk__in=ids)",
            ".order_by()",
            f"{PAGING}test_what_is_shown_of_a_row_is_asked_for_the_rows_of_the_page_alone",
        ),
    ),
    *in_(
        "admin/workflow.py",
        (
            "what failed today goes by its number",
            '["-completed_at", "-id"] if by_failure else ["-id"]',
            '["-id"]',
            f"{PAGING}test_what_failed_today_goes_by_when_it_failed",
        ),
    ),
    *in_(
        "models/workflow.py",
        (
            "what has begun and is due is counted twice",
            "queued.filter(~Q(**_NO_REASON), begun=True, ",
            "queued.filter(begun=True, ",
            f"{HOME}test_what_is_queued_is_counted_and_listed_once_whatever_it_is_queued_for",
        ),
        (
            "what waits and is due is not queued",
            "return [queued.filter(**_NO_REASON), due]",
            "return [queued.filter(**_NO_REASON)]",
            f"{HOME}test_what_is_queued_is_counted_and_listed_once_whatever_it_is_queued_for",
        ),
        (
            "what is due waits",
            "return later & unparked & ~awaits_nothing",
            "return unparked & ~awaits_nothing",
            f"{LISTS}test_each_row_is_found_by_the_filter_of_its_state_and_by_no_other",
        ),
        (
            "what was put off is in no state",
            "return due | Q(**_NO_REASON)",
            "return due",
            f"{LISTS}test_each_row_is_found_by_the_filter_of_its_state_and_by_no_other",
        ),
    ),
]
