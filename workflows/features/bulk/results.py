"""WHAT BECAME of the items after a bulk operation was carried out on them.

A retry only queues a workflow: whether it completes shows later. The result is that of the run which the operation
started or changed. A run that somebody starts afterwards does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import CharField, Count, QuerySet, Value
from django.db.models.functions import Coalesce

from workflows.models import BulkItem, BulkOperation
from workflows.operations.bulk_verbs import Became, verbs

# A list looks up the results of at most so many items.
MOST_LISTED = 10_000
# Results that can still change by themselves.
OPEN = {Became.UNDER_WAY, Became.UNDECIDED, Became.REVERSING}


def is_followed(verb: str) -> bool:
    """Whether the verb's items have a result after it was carried out."""
    return verbs()[verb].became is not None


def with_results(items: QuerySet[BulkItem], verb: str) -> QuerySet[Any]:
    """Annotate items with what `became` of them. The verb must be followed, and carried out on them."""
    of = verbs()[verb]
    assert of.became is not None
    became = Coalesce(of.became(), Value(Became.DELETED), output_field=CharField())
    return items.annotate(**of.annotations).annotate(became=became)


def became(*bulks: BulkOperation) -> dict[int, Counter[str]]:
    """How many items of each operation became what; an empty Counter if the verb is not followed."""
    counted: dict[int, Counter[str]] = {bulk.pk: Counter() for bulk in bulks}
    together: dict[Any, list[BulkOperation]] = {}  # one statement for all verbs with the same rule
    for bulk in bulks:
        if is_followed(bulk.verb):
            together.setdefault(verbs()[bulk.verb].became, []).append(bulk)
    for alike in together.values():
        items = BulkItem.objects.filter(operation__in=alike, outcome=BulkItem.Outcome.DONE).order_by()
        found = with_results(items, alike[0].verb).values_list("operation", "became").annotate(Count("pk"))
        for bulk_id, state, number in found:
            counted[bulk_id][state] = number
    return counted


def few_enough(bulks: Iterable[BulkOperation]) -> Iterator[BulkOperation]:
    """The first of these operations whose items together are few enough for a list to look up their results."""
    left = MOST_LISTED
    for bulk in bulks:
        if bulk.selected <= left:
            yield bulk
            left -= bulk.selected
