"""OUTBOX: the state of each destination, judged by the events that wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

from workflows.features.outbox import metrics
from workflows.features.outbox.chores import OPEN
from workflows.features.outbox.destinations import SERVICES, destinations
from workflows.health import bounded
from workflows.health.bounded import Count, Link
from workflows.health.families import Family, Section
from workflows.health.figures import Figures
from workflows.health.reasons import WAITS_TOO_LONG, About, Level, Piece, Reason, of, reason, seconds
from workflows.health.side_processes import RELAY, START_WITHIN, Unattended
from workflows.postgres.often import fetch_all
from workflows.postgres.skip_scan import skip_scan
from workflows.wording import length

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SEE_OUTBOX = "workflows.view_outboxevent"


@dataclass(frozen=True, slots=True)
class Standing:
    """A destination: how many events wait, since when the oldest does, and how many were given up.

    `is_known`: OUTBOX_DESTINATIONS names it. `is_disabled`: it answered 410, and nobody has tried it again.
    """

    name: str
    waiting: Count
    oldest: datetime | None
    given_up: Count
    is_known: bool = True
    is_disabled: bool = False

    @property
    def service(self) -> str:
        return f"{SERVICES}{self.name}"


_FOUND = f"""
    WITH RECURSIVE {OPEN},
         {skip_scan("given_up", "workflows_outboxevent", "state = 'given_up'", "destination")}
    SELECT name, waiting.number, waiting.oldest, given_up.number,
           EXISTS (SELECT FROM workflows_service circuit WHERE circuit.name = '{SERVICES}' || names.name
                      AND circuit.opened_at IS NOT NULL AND circuit.retry_at IS NULL)
      FROM (SELECT destination AS name FROM open UNION SELECT destination FROM given_up
            UNION SELECT unnest(%(known)s::text[])) names
     CROSS JOIN LATERAL (
           SELECT count(*) AS number, min(since) AS oldest
             FROM (SELECT since FROM workflows_outboxevent WHERE state = '' AND destination = name
                    ORDER BY since LIMIT %(limit)s) each) waiting
     CROSS JOIN LATERAL (
           SELECT count(*) AS number
             FROM (SELECT FROM workflows_outboxevent WHERE state = 'given_up' AND destination = name
                    LIMIT %(limit)s) each) given_up
     ORDER BY name"""  # noqa: S608 (ours)


def standings() -> list[Standing]:
    """The destinations that the setting names or that have open events, by one step in each of two indexes."""
    try:
        known = list(destinations())
    except ImproperlyConfigured:  # a system check reports it
        known = []
    found = fetch_all(_FOUND, {"known": known, "limit": bounded.limit() + 1})
    return [
        Standing(
            name,
            _count(waiting, name, "open"),
            oldest,
            _count(given_up, name, "given_up"),
            name in known,
            is_disabled,
        )
        for name, waiting, oldest, given_up, is_disabled in found
    ]


def _count(number: int, destination: str, state: str) -> Count:
    return Count(number, Link("outboxevent", filters=(("destination", destination), ("state", state))))


def need_a_person(found: Iterable[Standing]) -> list[tuple[str, Link]]:
    """A sentence, and a link, for each destination that gets no events unless somebody acts."""
    return [told for each in found if (told := _needs(each))]


def _needs(each: Standing) -> tuple[str, Link] | None:
    if each.given_up.number:
        what = (
            "event could not be sent to it, and was"
            if each.given_up.number == 1
            else "events could not be sent, and were"
        )
        return f"The destination {each.name}: {each.given_up} {what} given up.", each.given_up.link
    if each.is_disabled:
        text = f"The destination {each.name} answered that it wants no events any more; {each.waiting} wait."
        return text, Link("service", pk=each.service)
    if not each.is_known and each.waiting.number:
        return f"No destination is named {each.name} any more, and {each.waiting} wait for it.", each.waiting.link
    return None


def wanted(destinations: Iterable[Standing], at: datetime) -> list[Unattended]:
    """The destinations with events that wait for a relay."""
    return [
        Unattended(RELAY, each.name, f"{each.waiting} {'event waits' if each.waiting.number == 1 else 'events wait'}")
        for each in destinations
        if each.is_known and each.oldest and at - each.oldest >= START_WITHIN
    ]


@dataclass(frozen=True, slots=True)
class Destinations(Figures):
    destinations: list[Standing]
    wanted: Sequence[Unattended]

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        return {About.OTHERS: self._untold(at)}

    def _untold(self, at: datetime) -> Iterator[Reason]:
        for each in self.destinations:
            if each.given_up.number:
                what = f"given up for the destination {each.name}"
                events = "event was" if each.given_up.number == 1 else "events were"
                yield reason(Level.SLOW, of(each.given_up, f"{events} {what}"))
            elif each.oldest and seconds(each.oldest, at) >= WAITS_TOO_LONG:
                waits = length(seconds(each.oldest, at))
                yield reason(
                    Level.SLOW,
                    Piece(f"the destination {each.name} has not received an event for "),
                    Piece(waits, each.waiting.link),
                )

    def number_that_stand_still(self, user: User) -> int:
        return len(need_a_person(self.destinations)) if user.has_perm(SEE_OUTBOX) else 0

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family]]:
        return {Section.OTHERS: metrics.families(self.destinations, at)}
