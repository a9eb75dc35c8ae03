"""What is true of a patient's workflows after whatever people and faults did: of money, people and counts.

Each function returns what is wrong, in sentences. The bank's own book says what was charged; what a person said wrongly
about a call (`misled`) is excused until they retract it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import timedelta
from itertools import combinations
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import F, Q
from django.utils import timezone

from tests.workflows.model.clinic import Clinic, Entry
from workflows.console import workflow_page
from workflows.effects import IN_DOUBT
from workflows.errors import DUPLICATES
from workflows.health import bounded, counts, money_at_risk
from workflows.health import needs_a_person as needs
from workflows.health.needs_a_person import Asked
from workflows.models import (
    CaseNote,
    Confirmation,
    Correction,
    Deputy,
    Effect,
    Erasure,
    Event,
    FollowUp,
    ManualTask,
    Pause,
    Proposal,
    State,
    Workflow,
)
from workflows.telling import patient

# What came later than this after the end of the first is another visit.
WITHIN = timedelta(hours=24)
_CHARGED = re.compile(r"\$399\.00 charged at .*?, (ch_\d+)(.*)\.")


# --- People ---------------------------------------------------------------------------------------------


def of_two_people() -> Iterator[str]:
    """Nobody is the second person for what somebody did while one of them stood in for the other, or before."""
    of_two: list[tuple[Any, str]] = [
        (Confirmation, "confirmed"),
        (Correction, "approved"),
        (Erasure, "done"),
        (Proposal, "approved"),
    ]
    for model, state in of_two:
        for row in model.objects.filter(state=state).exclude(decided_by=F("asked_by")):
            pair = Q(absent=row.asked_by, deputy=row.decided_by) | Q(absent=row.decided_by, deputy=row.asked_by)
            meanwhile = Q(begins_at__lte=row.decided_at, ends_at__gt=row.asked_at) & Q(ends_at__gt=F("begins_at"))
            if Deputy.objects.filter(pair, meanwhile).exists():
                yield f"{model.__name__} {row.pk}: a deputy was the second person"


# --- Money --------------------------------------------------------------------------------------------


def of_money_lines(clinic: Clinic, row: Workflow) -> Iterator[str]:
    """The money line says what the bank has, or that it is unclear; once a worker has read what a person has said."""
    answered = ManualTask.objects.filter(workflow=row.pk, state__in=["approved", "rejected"])
    if answered.filter(wait__outcome="", wait__superseded=False).exists():
        return
    line = workflow_page.page(row, AnonymousUser())["money"]
    said: dict[str, str] = {}
    unclear = 0
    for sentence in re.split(r"(?<=\.) (?=[A-Z$])", line):
        if found := _CHARGED.fullmatch(sentence):
            said[found[1]] = found[2]
        elif "may have been charged" in sentence:
            unclear += 1
        elif "was not charged" not in sentence and sentence != "Nothing has been charged.":
            yield f"workflow {row.pk}: nobody knows what “{sentence}” means"
    entries = {entry.number: entry for entry in clinic.charges_of(row)}
    for number, rest in said.items():
        is_open = "not known" in rest or "may have" in rest
        stands = number in entries and entries[number].stands
        if not is_open and stands == ("; refunded" in rest):
            known = _in_words(entries.get(number))
            yield f"workflow {row.pk}: the bank says that {number} {known}, and we say “{line}”"
    untold = [each.number for each in entries.values() if each.stands and each.number not in said]
    if len(untold) > unclear:
        yield f"workflow {row.pk}: {', '.join(untold)} stands at the bank, and we say “{line}”"


def _in_words(entry: Entry | None) -> str:
    return "does not exist" if entry is None else "stands" if entry.stands else "is refunded"


def of_patients_lines(clinic: Clinic, row: Workflow) -> Iterator[str]:
    """The patient is told of a refund that was made, and of a payment that stands."""
    told, entries = patient.message_of(row), clinic.charges_of(row)
    standing = [each.number for each in entries if each.stands]
    if patient.REFUNDED in told and (standing or not entries):
        yield f"workflow {row.pk}: {standing or 'nothing'} stands at the bank, and the patient hears “{told}”"
    if patient.NOT_REFUNDED in told and not standing:
        yield f"workflow {row.pk}: nothing stands at the bank, and the patient hears “{told}”"
    names = ("NOT_REFUNDED", "UNCLEAR", "UNKNOWN", "REFUND_UNKNOWN", "UNCLEAR_LEFT", "REFUND_UNCLEAR_LEFT")
    sentences = [getattr(patient, name) for name in names if hasattr(patient, name)]
    if row.status == "FAILED" and standing and not any(each in told for each in sentences):
        yield f"workflow {row.pk}: {standing} stands at the bank, and the patient hears only “{told}”"


def of_one_charge(clinic: Clinic, row: Workflow) -> Iterator[str]:
    """Never two standing charges for one idempotency key."""
    standing = [each.number for each in clinic.charges_of(row) if each.stands]
    if len(standing) > 1:
        yield f"workflow {row.pk} is charged {len(standing)} times: {', '.join(standing)}"


def of_one_business(clinic: Clinic, rows: Collection[Workflow]) -> Iterator[str]:
    """Nobody is charged twice for one business key, unless a person has said so, or it is another visit or person."""
    charged = [(row, each) for row in rows for each in clinic.charges_of(row) if each.stands]
    for (first, one), (second, other) in combinations(charged, 2):
        if first == second or not _are_the_same(one, other) or _told_apart(first, second):
            continue
        if not (_is_another_visit(first, second) or _is_another_visit(second, first)):
            yield f"workflows {first.pk} and {second.pk} are both charged, {one.number} and {other.number}"


def _are_the_same(one: Entry, other: Entry) -> bool:
    """Of one key, and perhaps of one person, by what was sent when they were charged."""
    (email, program, *person), (other_email, other_program, *other_person) = one.about, other.about
    differing = sum(own != others for own, others in zip(person, other_person, strict=True))
    return (email, program) == (other_email, other_program) and differing < 2


def _told_apart(*rows: Workflow) -> bool:
    said = ManualTask.objects.filter(workflow__in=rows, task_type="possible_duplicate", state="approved")
    return said.exists() or Event.objects.filter(workflow__in=rows, kind=Event.Kind.NOT_A_DUPLICATE).exists()


def _is_another_visit(first: Workflow, later: Workflow) -> bool:
    return first.status == "COMPLETE" and later.created_at > _end(first) + WITHIN


def _end(row: Workflow) -> Any:
    assert row.completed_at
    return row.completed_at


# --- People -------------------------------------------------------------------------------------------


def of_failures(clinic: Clinic, row: Workflow, user: User, seen_at: dict[int, int]) -> Iterator[str]:
    """Nothing ends with a charge that stands, or may, of which nobody is told."""
    held = [each for each in clinic.charges_of(row) if each.stands]
    if row.status != "FAILED" or not held:
        return
    asked = ManualTask.objects.open().filter(workflow=row.pk).exists()
    last = Event.objects.filter(workflow=row.pk, kind=Event.Kind.ACKNOWLEDGED).order_by("id").last()
    acknowledged = last is not None and row.acknowledged_failure == row.completed_at and last.at >= _end(row)
    kept = Effect.objects.filter(workflow=row.pk, step="charge", undo=False, state=Effect.State.KEPT).exists()
    cancelled = row.cancelled_at is not None and all(each.turn < seen_at.get(row.pk, 0) for each in held)
    if not (asked or acknowledged or kept or cancelled or row.pk in _told_of(user)):
        yield f"workflow {row.pk} is {row.state} ({row.last_error_code}), {held[0].number} stands, and nobody is told"


def _told_of(user: User) -> set[int]:
    """The failed workflows that stand on “For you” of somebody, where they are not folded away."""
    groups = [each for each in needs.groups(Asked(user)) if not each.asks_nobody]
    return {pk for group in groups for pk in group.newest}


def of_the_turned_away(row: Workflow, rows: Collection[Workflow]) -> Iterator[str]:
    """Who ends as a duplicate in silence has sent the same within a day of another one of theirs that is done."""
    by_a_person = Event.objects.filter(workflow=row.pk, kind=Event.Kind.ACKNOWLEDGED).exists()
    silent = row.acknowledged_failure == row.completed_at and not by_a_person
    if row.last_error_code != "duplicate_of" or row.emptied_at or not (row.status == "FAILED" and silent):
        return
    same = [each for each in rows if each != row and (each.emptied_at or _sent(each) == _sent(row))]
    if not any(each.status == "PENDING" or row.created_at <= _end(each) + WITHIN for each in same):
        yield f"workflow {row.pk} is turned away in silence, and is no submission that was sent again within a day"


def _sent(row: Workflow) -> dict[str, Any]:
    return {name: value for name, value in row.payload.items() if name != "token"}


def of_the_untold(row: Workflow) -> Iterator[str]:
    """Nothing that is about a charge stands still for more than an hour untold: a question is due, or Home names it."""
    an_hour_ago = timezone.now() - timedelta(hours=1)
    asked = ManualTask.objects.open().filter(workflow=row.pk)
    for task in asked.filter(due_at=None).exclude(task_type="approval"):
        yield f"task {task.pk} of workflow {row.pk} ({task.task_type}) is never due"
    unclear = Effect.objects.filter(workflow=row.pk, step="charge", undo=False, state__in=IN_DOUBT)
    if row.status != "PENDING" or asked.exists() or not unclear.filter(begun_at__lt=an_hour_ago).exists():
        return
    is_due = row.invisible_until <= timezone.now()  # the next worker asks, or finds out
    if not is_due and row.pk not in money_at_risk.long_unclear_charges():
        yield f"nobody has known for an hour whether workflow {row.pk} charged, and nobody is told ({row.state})"


# --- Counts -------------------------------------------------------------------------------------------


def of_counts(clinic: Clinic, rows: Collection[Workflow], user: User, misled: Collection[int]) -> Iterator[str]:
    """What Home and the metrics count is what there is."""
    found = counts.read()
    by_state = Counter(State(row.state) for row in rows)
    failed = [each for each in rows if each.state == State.FAILED and each.last_error_code not in DUPLICATES]
    tasks = [each for each in ManualTask.objects.select_related("workflow") if each.state == "open"]
    tasks = [each for each in tasks if each.workflow.status == "PENDING"]
    given_up = [each for each in FollowUp.objects.all() if each.due_at is None]
    given_up = [each for each in given_up if each.acknowledged_failure != each.created_at]
    corrections = [each for each in Correction.objects.all() if each.state == "asked"]
    retries = [each for each in Confirmation.objects.all() if each.state == "asked" and each.task_id is None]
    leads = [each for each in CaseNote.objects.all() if each.lead_asked_at]
    late = [each for each in Pause.objects.all() if each.begun_at and each.until <= timezone.now()]
    plain = {
        **{state.label: by_state[state] for state in State},
        "failed in the last hour": sum(_end(each) >= found.at - timedelta(hours=1) for each in failed),
        "failed in the last day": sum(_end(each) >= found.at - timedelta(days=1) for each in failed),
        "open tasks": len(tasks),
        "overdue tasks": sum(each.due_at is not None and each.due_at <= timezone.now() for each in tasks),
        "rows that need a person": sum(map(len, (tasks, given_up, corrections, retries, leads, late))),
        "failures that need a person": sum(_is_left(each) for each in rows),
    }
    counted = {
        **{state.label: count.number for state, count in found.states.items()},
        "failed in the last hour": found.failed.number,
        "failed in the last day": found.failed_today.number,
        "open tasks": found.tasks.number,
        "overdue tasks": found.overdue.number,
        "rows that need a person": needs.page_and_count(Asked(user))[1],
        "failures that need a person": sum(group.number for group in needs.groups(Asked(user))),
    }
    for name, number in plain.items():
        if counted[name] != number:
            yield f"{name}: {number}, and {counted[name]} are counted"
    if not misled:
        held = [row.pk for row in rows if _is_left(row) and any(each.stands for each in clinic.charges_of(row))]
        if len(held) > len(money_at_risk.standing_charges()):
            yield f"the charges of {held} stand, and {len(money_at_risk.standing_charges())} are counted"
    assert bounded.limit() > len(rows)


def _is_left(row: Workflow) -> bool:
    return row.state == State.FAILED and row.acknowledged_failure != row.completed_at
