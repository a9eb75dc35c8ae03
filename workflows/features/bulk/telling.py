"""A bulk operation in words: what it would do, and its progress."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils import timezone

from workflows.features.bulk import operations as bulk
from workflows.features.bulk import previews
from workflows.features.bulk.results import OPEN
from workflows.health import workers
from workflows.models import BulkItem, BulkOperation, WorkerProcess
from workflows.operations.bulk_verbs import Became, verbs
from workflows.telling import words
from workflows.wording import length

State, Outcome = BulkOperation.State, BulkItem.Outcome

# The words for each result, unless the verb has its own.
BECAME: dict[str, str] = {
    Became.COMPLETE: "complete",
    Became.FOLLOWED_UP: "done",
    Became.SENT: "sent",
    Became.UNDER_WAY: "under way",
    Became.UNDECIDED: "with a reversal to decide",
    Became.REVERSING: "reversing",
    Became.FAILED: "failed again",
    Became.GIVEN_UP: "given up again",
    Became.CANCELLED: "cancelled",
    Became.DISCARDED: "discarded",
    Became.AGAIN: "taken up again since",
    Became.DELETED: "deleted since",
}
BAD = {Became.FAILED, Became.GIVEN_UP}


def name_of(row: BulkOperation) -> str:
    verb = verbs()[row.verb]
    return f"{verb.noun} of {row.selected:,} {verb.what}{'s' if row.selected != 1 else ''}"


def of_start(row: BulkOperation, user: Any, *, pace: int | None = None) -> Iterator[str]:
    """Sentences about what happens if this user starts it."""
    if why := bulk.why_four_eyes(row, user):
        yield f"Nothing happens yet: {why}."
    yield from of_items(row, user, pace=pace)


def why_not_start(row: BulkOperation, user: Any) -> str:
    """Why this user cannot start it, in a sentence; empty if they can."""
    if row.asked_by_id != user.pk:
        return f"{row.asked_by.get_username()} has chosen these; choose your own."
    return "" if previews.can_any(row, user) else f"None of the {row.selected:,} chosen can be {verbs()[row.verb].did}."


def of_items(row: BulkOperation, user: Any, *, pace: int | None = None) -> Iterator[str]:
    """Sentences about what it would do to its items."""
    shown, verb = previewed(row, user), verbs()[row.verb]
    which = f"All {shown.can:,}" if shown.can == row.selected > 1 else f"{shown.can:,} of the {row.selected:,}"
    pace = pace or (bulk.usual_pace(row.verb) if row.state == State.DRAFT else row.pace)
    takes = length(max(shown.can / pace, 1))
    yield f"{which} chosen {'is' if shown.can == 1 else 'are'} {verb.did}."
    yield f"At {pace} a second that takes {takes}."
    for number, why in shown.cannot:
        yield f"{number:,} {'is' if number == 1 else 'are'} left alone: {words.ended(why)}"
    yield from filter(None, (shown.warning, shown.money))
    yield from verb.how
    yield "Others that come to match from now on are not touched. You can pause it, or cancel the rest, at any time."


def previewed(row: Any, user: Any) -> previews.Preview:
    """The preview, computed once for a page: it takes a moment for 10,000 rows."""
    if not hasattr(row, "previewed"):
        row.previewed = previews.preview(row, user)
    shown: previews.Preview = row.previewed
    return shown


def sentence(row: BulkOperation, counted: dict[str, int], became: Mapping[str, int]) -> str:
    """A sentence about the progress, what happens next, and the results so far."""
    return " ".join(filter(None, (_how_far(row, counted), words.ended(told) if (told := results(row, became)) else "")))


def _how_far(row: BulkOperation, counted: dict[str, int]) -> str:
    left, of = counted[Outcome.OPEN], f"{row.selected - counted[Outcome.OPEN]:,} of {row.selected:,} dealt with"
    match row.state:
        case State.DRAFT:
            return f"{row.selected:,} are chosen, and nothing is done yet: start it, or choose others."
        case State.ASKED:
            return "Nothing is done yet: it waits for another user to approve it."
        case State.RUNNING:
            live = WorkerProcess.objects.filter(workers.is_live(timezone.now())).exists()
            rest = f"about {length(max(left / row.pace, 1))} left" if live else "no worker is running"
            return f"{of}; {rest}."
        case State.PAUSED:
            return f"{of}. {words.ended(row.paused_why)}"
        case State.CANCELLED:
            return f"Cancelled: {left:,} of {row.selected:,} were not touched."
    done = counted[Outcome.DONE]
    which = (
        f"All {done:,}"
        if done == row.selected > 1
        else "It"
        if done == row.selected
        else f"{done:,} of {row.selected:,}"
    )
    return f"{which} {'is' if done == 1 else 'are'} {'; '.join([done_to(row), *not_done(row, counted)])}."


def not_done(row: BulkOperation, counted: Mapping[str, int]) -> list[str]:
    """How many items it was not done to, for each outcome that has some."""
    outcomes = (each for each in (Outcome.SKIPPED, Outcome.FAILED) if counted[each])
    return [f"{counted[each]:,} {label(row, each).lower()}" for each in outcomes]


def done_to(row: BulkOperation) -> str:
    """The word for what the operation itself did to an item: `retried`."""
    verb = verbs()[row.verb]
    return verb.done or verb.did


def label(row: BulkOperation, outcome: str) -> str:
    """The label of an item's outcome, which does not include its later result."""
    match outcome:
        case Outcome.DONE:
            return done_to(row).capitalize()
        case Outcome.FAILED:
            return "Ended in an error"
    return Outcome(outcome).label.capitalize()


def result(row: BulkOperation, became: str) -> str:
    """The result of an item, in a few words."""
    return verbs()[row.verb].otherwise.get(became, BECAME[became])


def results(row: BulkOperation, became: Mapping[str, int]) -> str:
    """The results of all items: `0 complete, 8 failed again`. Empty if there are none, or none yet."""
    shown = [each for each in BECAME if became.get(each) or (became and each == verbs()[row.verb].aim)]
    return ", ".join(f"{became.get(each, 0):,} {result(row, each)}" for each in shown)


def tone_of(row: BulkOperation, became: str) -> str:
    """The tone of a result: `good`, `bad`, `busy`, or `wait` if somebody may want to look."""
    if became == verbs()[row.verb].aim:
        return "good"
    return "bad" if became in BAD else "busy" if became in OPEN else "wait"


def tone(row: BulkOperation, counted: Mapping[str, int], became: Mapping[str, int]) -> str:
    """The tone of a finished operation: that of its worst result. Empty before it is finished."""
    if row.state != State.DONE:
        return ""
    tones = {tone_of(row, each) for each in became}
    tones |= {tone for tone, of in (("bad", Outcome.FAILED), ("wait", Outcome.SKIPPED)) if counted[of]}
    return next((each for each in ("bad", "busy", "wait") if each in tones), "good")
