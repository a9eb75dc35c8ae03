"""WHAT BECAME of the items of a bulk operation after it was carried out on them, as it is now.

To retry a workflow only queues it: whether it completes is seen later. An item is judged by the run that the operation
started, or was about. Once somebody has started the workflow again, what comes of that is not the operation's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import CharField, Count, QuerySet, Value
from django.db.models.functions import Coalesce

from workflows.models import BulkItem, BulkOperation
from workflows.operations.bulk_verbs import Became, verbs

# In a list what became of so many items is looked up, and no more.
MOST_LISTED = 10_000
# What still changes by itself.
OPEN = {Became.UNDER_WAY, Became.UNDECIDED, Became.REVERSING}


def is_followed(verb: str) -> bool:
    """Whether something becomes of the items after the operation was carried out on them."""
    return verbs()[verb].became is not None


def with_results(items: QuerySet[BulkItem], verb: str) -> QuerySet[Any]:
    """Annotate items on which a verb that is followed was carried out with what `became` of them."""
    of = verbs()[verb]
    assert of.became is not None
    became = Coalesce(of.became(), Value(Became.DELETED), output_field=CharField())
    return items.annotate(**of.annotations).annotate(became=became)


def became(*bulks: BulkOperation) -> dict[int, Counter[str]]:
    """How many of the items of each on which it was carried out became what; none for a verb that is not followed."""
    counted: dict[int, Counter[str]] = {bulk.pk: Counter() for bulk in bulks}
    together: dict[Any, list[BulkOperation]] = {}  # one statement for all that are judged alike
    for bulk in bulks:
        if is_followed(bulk.verb):
            together.setdefault(verbs()[bulk.verb].became, []).append(bulk)
    for alike in together.values():
        items = BulkItem.objects.filter(operation__in=alike, outcome=BulkItem.Outcome.DONE).order_by()
        told = with_results(items, alike[0].verb).values_list("operation", "became").annotate(Count("pk"))
        for bulk_id, state, number in told:
            counted[bulk_id][state] = number
    return counted


def few_enough(bulks: Iterable[BulkOperation]) -> Iterator[BulkOperation]:
    """The first of these that together have so few items that a list can say what became of them."""
    left = MOST_LISTED
    for bulk in bulks:
        if bulk.selected <= left:
            yield bulk
            left -= bulk.selected
