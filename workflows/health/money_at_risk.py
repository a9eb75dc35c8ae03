"""MONEY AT RISK: failed reversals, charges that stand though their workflow has failed, and questions about calls."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from django.db.models import QuerySet

from workflows import charges
from workflows.effects import MAY_HAVE_HAPPENED
from workflows.effects.reconcile import DOUBT_TASK_TYPE
from workflows.engine import undo_question
from workflows.engine.undo_doubts import DEATHS_TASK_TYPE, LOSSES_TASK_TYPE, UNDO_TASK_TYPE
from workflows.extension import installed
from workflows.health import bounded, late
from workflows.models import Workflow
from workflows.operations.amounts import total
from workflows.operations.payments import charges_among, failed_with_a_charge
from workflows.postgres.often import fetch_all, fetch_row
from workflows.waits.declared import UNDECLARED_TASK_TYPE

# Only the newest failures that nobody has acknowledged are checked, while they are new. If there are more, their number
# alone is an alarm.
FAILURES = 1_000
# Questions with money in doubt, due within the hour: the words for one, and for several.
_IN_DOUBT = {
    DOUBT_TASK_TYPE: ("unclear call", "unclear calls"),
    UNDO_TASK_TYPE: ("failed reversal", "failed reversals"),
    undo_question.TASK_TYPE: ("reversal to decide", "reversals to decide"),
}
# Questions with money perhaps in doubt.
_PERHAPS_IN_DOUBT = {
    UNDECLARED_TASK_TYPE: (
        "question about a step or wait that is gone",
        "questions about steps or waits that are gone",
    ),
    DEATHS_TASK_TYPE: ("question about workers that keep dying", "questions about workers that keep dying"),
    LOSSES_TASK_TYPE: (
        "question about workers that keep losing the database",
        "questions about workers that keep losing the database",
    ),
}


def urgent() -> dict[str, tuple[str, str]]:
    """Both, with the features' own questions between them."""
    of_features = (each.urgent_questions for each in installed())
    return {**_IN_DOUBT, **{name: words for each in of_features for name, words in each.items()}, **_PERHAPS_IN_DOUBT}


def failed_reversals() -> int:
    """The number of calls to be undone whose undo has failed since a person last decided. An outage is no failure.

    Checks a bounded number of the newest calls whose undo has ever failed.
    """
    (number,) = fetch_row(
        """SELECT count(*) FROM (
               SELECT workflow_id FROM workflows_effect
                WHERE undo_failures > 0 AND NOT undo AND state = ANY (%(states)s) ORDER BY id DESC LIMIT %(limit)s) e
            CROSS JOIN LATERAL (
               SELECT FROM workflows_workflow w WHERE w.id = e.workflow_id AND w.compensating LIMIT 1) under_way""",
        {"states": list(MAY_HAVE_HAPPENED), "limit": bounded.limit() + 1},
    )
    return int(number)


def standing_charges() -> set[int]:
    """Failed workflows that nobody has acknowledged, whose charge stands or is unclear, among the newest."""
    return failed_with_a_charge(FAILURES)


class Held(NamedTuple):
    """The workflows that hold money among the newest of some, `asked` at the most, and their sum in words."""

    workflows: list[int]
    total: str
    asked: int


def held_by(rows: QuerySet[Workflow]) -> Held:
    """The money that the first of these rows hold, in their order. Three bounded statements."""
    asked = list(rows.values_list("pk", flat=True)[:FAILURES])
    found = charges_among(asked)
    return Held([pk for pk in asked if pk in found], total(found) if found else "", len(asked))


def newest_with(rows: QuerySet[Workflow], money: str) -> set[int]:
    """Of the first of these rows, in their order, those whose money is `held`, `unclear` or (all of it) `refunded`."""
    asked = list(rows.values_list("pk", flat=True)[:FAILURES])
    if money == "refunded":
        return charges_among(asked, charges.REFUNDED).keys() - charges_among(asked).keys()
    return {*charges_among(asked, charges.UNCLEAR if money == "unclear" else charges.HELD)}


def _open(task_type: str, condition: str = "") -> str:
    """SQL for the open tasks of a type, by their index.

    The type is a literal, so that the planner knows how few there are. LATERAL and LIMIT fix the order of the joins:
    another order could read all workflows under way.
    """
    return f"""SELECT t.workflow_id AS id, under_way.workflow_type, t.wait_id FROM workflows_manualtask t
                CROSS JOIN LATERAL (
                      SELECT w.workflow_type FROM workflows_workflow w
                       WHERE w.id = t.workflow_id AND w.status = 'PENDING' LIMIT 1) under_way
                WHERE t.state = 'open' AND t.task_type = '{task_type}' {condition} LIMIT %(limit)s"""  # noqa: S608 (ours)


class Questions(NamedTuple):
    """By type, of those that have any: the overdue tasks in `urgent`, and all open ones with money in doubt."""

    overdue: dict[str, int]
    open: dict[str, int]


def questions() -> Questions:
    """At most `bounded.limit` and one of each, in one statement."""
    is_late = "AND coalesce(t.due_at, t.expires_at) <= statement_timestamp()"  # each has a due time
    late = list(urgent())
    of = [*(_open(each, is_late) for each in late), *map(_open, _IN_DOUBT)]
    columns = ", ".join(f"(SELECT count(*) FROM ({each}) each)" for each in of)  # noqa: S608 (ours)
    numbers = fetch_row(f"SELECT {columns}", {"limit": bounded.limit() + 1})
    found = [(each, number) for each, number in zip([*late, *_IN_DOUBT], numbers, strict=True) if number]
    number_late = sum(map(bool, numbers[: len(late)]))
    return Questions(dict(found[:number_late]), dict(found[number_late:]))


# A lookup settles a call at the next attempt, minutes later. After so long a person has to look.
UNCLEAR_FOR = timedelta(hours=1)
_OF_THE_OLDEST = f"""
    WITH w AS MATERIALIZED ({late.OLDEST_OF_EACH}),
         in_doubt AS MATERIALIZED (
           SELECT DISTINCT w.id FROM ({charges.calls_of("SELECT id, workflow_type FROM w")}) e
             JOIN w ON w.id = e.workflow_id {charges.JOIN}
            WHERE {charges.UNCLEAR} AND e.state IN ('intent', 'unknown')
              AND e.first_begun_at <= statement_timestamp() - %(unclear_for)s::interval)
    SELECT w.workflow_type, count(*) FROM w
      JOIN unnest(%(names)s::text[], %(longest)s::interval[]) stuck (name, longest)
        ON w.workflow_type = stuck.name AND w.created_at < statement_timestamp() - stuck.longest
     GROUP BY 1
     UNION ALL
    SELECT NULL, id FROM in_doubt
     WHERE (SELECT true FROM workflows_manualtask t
             WHERE t.workflow_id = in_doubt.id AND t.state = 'open' LIMIT 1) IS NULL"""  # noqa: S608 (ours)


class OfTheOldest(NamedTuple):
    """`stuck`: by type, how many are older than the type's longest time. `unclear`: see `long_unclear_charges`."""

    stuck: dict[str, int]
    unclear: list[int]


def of_the_oldest(longest: Mapping[str, timedelta]) -> OfTheOldest:
    """Checks only the oldest unfinished workflows in each state. A retried workflow is as old as its submission."""
    of_types = {"names": list(longest), "longest": list(longest.values())}
    found = fetch_all(
        _OF_THE_OLDEST, {**of_types, "unclear_for": UNCLEAR_FOR, "oldest": late.OLDEST, **charges.parameters()}
    )
    stuck = {**dict.fromkeys(sorted(longest), 0), **{name: number for name, number in found if name is not None}}
    return OfTheOldest(stuck, [pk for name, pk in found if name is None])


def long_unclear_charges() -> list[int]:
    """Workflows under way with a charge in doubt for an hour, and without a question to a person.

    The lookup fails, or its service is down.
    """
    return of_the_oldest({}).unclear


_UNCLEAR = f"""
    SELECT count(*) FILTER (WHERE EXISTS (
               SELECT FROM workflows_effect e {charges.JOIN}
                WHERE e.workflow_id = w.id AND {charges.UNCLEAR}
                  AND concat('effect:', e.step, ':', e.generation)
                      = (SELECT name FROM workflows_wait q WHERE q.id = w.wait_id))),
           count(*)
      FROM ({_open(DOUBT_TASK_TYPE)}) w"""  # noqa: S608 (ours)


def unclear_calls() -> dict[bool, int]:
    """The number of open questions whether a call happened: True for possible charges, False for other calls."""
    of_charges, number = fetch_row(_UNCLEAR, {"limit": bounded.limit() + 1, **charges.parameters()})
    return {True: int(of_charges), False: int(number - of_charges)}
