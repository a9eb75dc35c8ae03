"""UNSETTLED: the reasons why a workflow keeps its content, whatever its age and even for an erasure."""

from __future__ import annotations

from collections.abc import Sequence

from workflows import charges
from workflows.effects.reconcile import PASSED_OVER, passed_over
from workflows.extension import Stay, installed
from workflows.features.retention.holds import held_by_an_old_key
from workflows.postgres.statements import fetch_all

# For the sentence "It cannot be deleted: {}." Features have more (`Extension.stays`).
_REASONS = {
    "held": "a legal hold is on it: wait for its end, or lift it",
    "pending": "it is still under way: cancel it (not while it is reversed), or wait for its end",
    "unclear": "it is unclear whether a call was made: a retry finds it out, or asks a person",
    "fading": "it is unclear whether a best-effort step made its call: wait until nobody can tell any more",
    "left": "it has failed, and a call was left as it is though nobody knows whether it was made: acknowledge it",
    "children": "another workflow that it started is still under way: cancel that, or wait for its end",
    "parent": "the workflow that started it has not been deleted yet: it is deleted after that one",
    "money": "it has failed and its charge stands, or may: acknowledge it, or have it end otherwise by a retry",
}

_STATED = "w.status = 'FAILED' AND w.cancelled_at IS NULL AND w.acknowledged_failure IS DISTINCT FROM w.completed_at"
_WHY = f"""
    SELECT w.id, CASE
           WHEN w.status = 'PENDING' THEN 'pending'
           WHEN EXISTS (SELECT FROM workflows_hold h
                         WHERE h.until > clock_timestamp()
                           AND (h.workflow_id = w.id OR EXISTS (
                                SELECT FROM workflows_searchkey k WHERE k.hash = h.hash AND k.workflow_id = w.id)))
                THEN 'held'
           WHEN EXISTS (SELECT FROM workflows_effect e
                         WHERE e.workflow_id = w.id AND e.state IN ('intent', 'unknown')
                           AND NOT {PASSED_OVER}
                           -- A person has left the call as it is, or had it retried: nobody asks any more how its
                           -- reversal ended.
                           AND NOT (e.undo AND EXISTS (
                                SELECT FROM workflows_effect kept
                                 WHERE kept.workflow_id = w.id AND kept.step = e.step AND NOT kept.undo
                                   AND kept.generation = e.generation
                                   AND (kept.state = 'kept' OR kept.state = 'done' AND w.status = 'COMPLETE'))))
                THEN CASE w.status WHEN 'COMPLETE' THEN 'fading' ELSE 'unclear' END
           WHEN {_STATED} AND EXISTS (
                SELECT FROM workflows_effect e {charges.JOIN}
                 WHERE e.workflow_id = w.id AND {charges.HELD}) THEN 'money'
           WHEN {_STATED} AND EXISTS (
                SELECT FROM workflows_effect e
                 WHERE e.workflow_id = w.id AND e.state = 'kept' AND e.result IS NULL) THEN 'left'
           {{of_features}}
           WHEN EXISTS (SELECT FROM workflows_workflow child
                         WHERE child.parent_id = w.id AND child.status = 'PENDING') THEN 'children'
           WHEN EXISTS (SELECT FROM workflows_workflow parent
                         WHERE parent.id = w.parent_id AND parent.emptied_at IS NULL
                           AND parent.id <> ALL (%(ids)s)) THEN 'parent'
           ELSE '' END
      FROM workflows_workflow w WHERE w.id = ANY (%(ids)s)"""  # noqa: S608 (ours)


def words_of_reasons() -> dict[str, str]:
    return _REASONS | {each.reason: each.words for each in _stays()}


def _stays() -> list[Stay]:
    return [stay for each in installed() for stay in each.stays]


def why_they_stay(ids: Sequence[int]) -> dict[int, str]:
    """The workflows that must keep their content, each with a key of `reasons`.

    Call it after their rows are locked: its statement then sees what was committed before the lock.
    """
    of_features = " ".join(f"WHEN {each.condition} THEN '{each.reason}'" for each in _stays())
    rows = fetch_all(_WHY.format(of_features=of_features), {"ids": list(ids), **charges.parameters(), **passed_over()})
    return dict.fromkeys(held_by_an_old_key(ids), "held") | {pk: why for pk, why in rows if why}


def settled(ids: Sequence[int]) -> tuple[list[int], dict[int, str]]:
    """The workflows that need not keep their content, and the reasons of the others. A child stays with its parent."""
    go, stay = list(ids), dict[int, str]()
    while go and (more := why_they_stay(go)):
        go = [pk for pk in go if pk not in more]
        stay |= more
    return go, stay
