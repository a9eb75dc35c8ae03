"""The history of a workflow in words. The small print has code names, and errors as recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from workflows.engine import undo_question
from workflows.errors import DIFFERS
from workflows.models import Event
from workflows.telling import words
from workflows.telling.steps import title_of, told_error
from workflows.wording import Wording

Kind = Event.Kind
NOTHING_TO_REVERSE = "Nothing was left to reverse."
_OF_PROPOSALS = {Kind.PROPOSED, Kind.PROPOSAL_REFUSED, Kind.PROPOSAL_WITHDRAWN, Kind.PROPOSAL_LAPSED}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the history."""

    at: datetime
    headline: str
    text: str
    small_print: str
    actor: str
    attempt: int | None
    kind: str


def line(event: Event, wording: Wording) -> Line:
    text, small_print = _told(event, wording)
    if bulk := event.detail.get("bulk"):
        text = _joined("\n", text, f"In bulk operation {bulk}.")
    if first := event.detail.get("first"):
        second = "Confirmed alone: nobody else could" if event.detail.get("alone") else f"First said by {first}"
        text = _joined("\n", text, f"{second}.", str(event.detail.get("note") or ""))
    if (by := event.detail.get("proposed_by")) and event.kind not in _OF_PROPOSALS:
        text = _joined("\n", text, f"Proposed by {by}, with the API key {event.detail.get('api_key', '?')}.")
        text = _joined("\n", text, "" if "first" in event.detail else str(event.detail.get("note") or ""))
    return Line(
        at=event.at,
        headline=_headline(event),
        text=text,
        small_print=small_print,
        actor=_joined(", for ", event.actor, str(event.detail.get("deputy_for") or "")),
        attempt=event.attempt,
        kind=event.kind,
    )


def without_services(events: Iterable[Event]) -> list[Event]:
    """The events for users who may not see the services, and their names."""
    found = list(events)
    for each in found:
        if service := each.detail.get("service"):
            mend = words.unnamed(str(each.detail.get("mend") or ""), service)
            each.detail = {**each.detail, "service": "", "mend": mend}
    return found


def _headline(event: Event) -> str:
    """The headline of an event. For an answer about a call it is the answer, not "approved"."""
    if event.kind == Kind.UNDO_FAILED and event.detail.get("unclear"):
        return "Not reversed: it is not known yet whether it happened"
    said = event.detail.get("said") if event.kind in (Kind.APPROVED, Kind.REJECTED) else None
    return words.SAID.get(str(said), _KINDS.get(event.kind, event.kind))


# Cached, because `get_kind_display` goes through all of them each time.
_KINDS = dict(Kind.choices)


def _told(event: Event, wording: Wording) -> tuple[str, str]:
    """An event's detail in words, and its small print. Uses only known fields, because others may contain anything."""
    detail, step = event.detail, event.step
    title, reason = title_of(wording, step), str(detail.get("reason") or "")
    match event.kind:
        case (
            Kind.RETRY_SCHEDULED
            | Kind.UNDO_FAILED
            | Kind.FAILED
            | Kind.BEST_EFFORT_FAILED
            | Kind.FOLLOW_UP_FAILED
            | Kind.FOLLOW_UP_GIVEN_UP
        ):
            error, recorded = told_error(wording, detail)
            return _failure(event, title, error), _joined(", ", step, recorded)
        case Kind.COMPENSATED:
            undone = [str(name) for name in detail.get("undone") or ()]
            titles = ", ".join(f"“{title_of(wording, name)}”" for name in undone)
            return f"Reversed: {titles}." if undone else NOTHING_TO_REVERSE, ", ".join(undone)
        case Kind.COMPENSATING if detail.get("asks"):
            return "A person is asked before anything is reversed.", ""
        case Kind.EXPIRED if detail.get("type") == undo_question.TASK_TYPE:
            return "Nobody has decided in time, so it is reversed.", ""
        case Kind.WAITING:
            until = _joined(", ", title, f"until {_moment(detail.get('until'))}")
            return f"{until}: {detail.get('waiting_for', '?')}", step
        case Kind.ACKNOWLEDGED | Kind.NOT_DEALT_WITH if detail.get("steps"):
            names = [str(name) for name in detail["steps"]]
            return _joined(": ", ", ".join(title_of(wording, name) for name in names), reason), ", ".join(names)
        case Kind.BY_HAND:
            return _joined("\n", _joined(": ", title, words.answered(detail, wording)), reason), step
        case Kind.CORRECTED | Kind.CORRECTION_LAPSED:
            asked = f"Asked for by {detail.get('asked_by', '?')}"
            return _joined("\n", _corrected(detail), _joined(": ", asked, reason), str(detail.get("note") or "")), ""
        case Kind.CORRECTION_ASKED | Kind.CORRECTION_REFUSED | Kind.CORRECTION_WITHDRAWN:
            return _joined("\n", _corrected(detail), reason), ""
        case Kind.PROPOSED | Kind.PROPOSAL_REFUSED | Kind.PROPOSAL_WITHDRAWN | Kind.PROPOSAL_LAPSED:
            proposed = f"{str(detail.get('proposes', '?')).capitalize()}, by the API key {detail.get('api_key', '?')}"
            of = f" of {detail['proposed_by']}" if "proposed_by" in detail else ""
            return _joined(": ", f"{proposed}{of}", reason), ""
        case Kind.CONFIRMATION_ASKED | Kind.CONFIRMATION_REFUSED | Kind.CONFIRMATION_WITHDRAWN:
            said = words.SAID.get(str(detail.get("said")), "" if detail.get("task") else "A retry that charges again")
            return _joined("\n", _joined(": ", title, said), reason), step
        case Kind.PAUSED | Kind.PAUSE_ASKED:
            return _joined(": ", f"Until {_moment(detail.get('until'))}", reason), ""
        case Kind.PAUSE_LAPSED:
            return f"{detail.get('asked_by', '?')} had asked for it, until a time that passed meanwhile.", ""
        case Kind.DUPLICATE:
            differs = "It differs, and was not carried out." if detail.get("error_code") == DIFFERS else ""
            return _joined(" ", f"Of workflow {detail.get('first', '?')}.", differs), ""
        case Kind.TASK_ASSIGNED:
            return _joined(": ", f"To {detail.get('to', '?')}", reason), ""
        case Kind.TEAM_ASKED | Kind.TEAM_HAS_SEEN:
            outside = ", by somebody who is not in it" if detail.get("outside") else ""
            return _joined(": ", f"The team {detail.get('team', '?')}{outside}", reason), ""
        case Kind.FOLLOWED_UP:
            return f"“{title}” has been done.", step
        case Kind.FOLLOW_UP_ASKED | Kind.DOUBT_ASKED:
            return _joined(": ", title, reason), step
        case Kind.PARKED if detail.get("mend"):
            return _joined(": ", title, f"it waits for {detail['mend']}."), step
        case Kind.PARKED:
            return _joined(": ", title, f"{words.the_service(detail.get('service', ''))} is unavailable."), step
        case Kind.CRASHED | Kind.KILLED | Kind.INTERRUPTED | Kind.LOST:
            return _joined(": ", title, str(detail.get("how") or "")), step
        case Kind.RETRACTED:
            said = words.SAID.get(str(detail.get("said")), "an answer")
            answer = _joined(": ", title, f"“{said}”, as {detail.get('answered_by', '?')} had answered")
            return _joined("\n", answer, reason), step
        case Kind.APPROVED | Kind.REJECTED if "said" in detail:
            return _joined("\n", _joined(": ", title, words.answered(detail, wording)), reason), step
    return reason, ""


def in_words(told: Any) -> str:
    """Each field of a correction with its old and new value, masked; or the text that replaces deleted ones."""
    if isinstance(told, str):
        return told
    return "; ".join(f"{each['label']} {_change(each['was'], each['is'])}" for each in told)


def _change(was: str, now: str) -> str:
    return f"from {was} to another that is masked alike" if was == now else f"from {was} to {now}"


def _corrected(detail: Mapping[str, Any]) -> str:
    return in_words(detail.get("corrected") or ())


def _failure(event: Event, title: str, error: str) -> str:
    """What failed, for how many times, and why. An event without a number was not counted as a failure."""
    detail = event.detail
    number = detail.get("failures") if event.kind in (Kind.RETRY_SCHEDULED, Kind.UNDO_FAILED) else None
    which = f"failure {number} of {detail.get('max_attempts', '?')}" if number else ""
    failure = _joined(": ", _joined(", ", title, which), error)
    if event.kind != Kind.RETRY_SCHEDULED:  # after the last failure of a reversal a person is asked at once
        return failure
    return _joined("\n", failure, f"Next attempt at {_moment(detail.get('invisible_until'))}")


def _joined(by: str, *parts: str) -> str:
    return by.join(filter(None, parts))


def _moment(text: Any) -> str:
    try:
        return words.clock(datetime.fromisoformat(str(text)))
    except ValueError:
        return "an unknown time"
