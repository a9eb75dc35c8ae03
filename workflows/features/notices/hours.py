"""HOURS in which a team works, in its own time zone; and how often it gets mail."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EXAMPLE = '{"zone": "America/New_York", "days": ["mon", "fri"], "from": "08:00", "to": "18:00"}'


class Hours(NamedTuple):
    """From `start` until `end`, on some days of the week. An `end` that is not after the `start` is on the next day."""

    zone: ZoneInfo
    days: frozenset[int]
    start: time
    end: time

    @classmethod
    def of(cls, said: Any) -> Hours:
        """Read the setting. Without `days` they are Monday to Friday. Raises ValueError, with an example.

        The end of the day is "24:00". From 00:00 to 24:00 is the whole day.
        """
        try:
            days = frozenset(map(DAYS.index, said.get("days", DAYS[:5])))
            is_midnight = said["to"] == "24:00"
            start, end = time.fromisoformat(said["from"]), time.min if is_midnight else time.fromisoformat(said["to"])
            zone = ZoneInfo(said["zone"])
            if said.keys() - {"zone", "days", "from", "to"} or not days or start.tzinfo or end.tzinfo:
                raise ValueError
            if start == end and not is_midnight:
                raise ValueError
        except (AttributeError, LookupError, TypeError, ValueError, OSError):
            raise ValueError(f"has wrong hours. They look like {_EXAMPLE}.") from None
        return cls(zone, days, start, end)

    def has(self, at: datetime) -> bool:
        """Whether the team works at this time."""
        here = at.astimezone(self.zone)
        now, today = here.time(), here.weekday()
        if self.start < self.end:
            return today in self.days and self.start <= now < self.end
        return (today in self.days and now >= self.start) or ((today - 1) % 7 in self.days and now < self.end)


class Mailing(NamedTuple):
    """How people get mail that can wait: one message in `digest`, in the `hours` of their team ("": of all others)."""

    digest: timedelta = timedelta(minutes=30)
    hours: tuple[tuple[str, Hours], ...] = ()

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Mailing:
        """Read a destination of OUTBOX_DESTINATIONS. Raises ValueError with the end of a sentence about it."""
        try:
            validate_email(said["email"])
        except (ValidationError, TypeError, AttributeError):
            raise ValueError("has an email that is no address: the one that the mail comes from.") from None
        minutes, hours = said.get("digest_minutes", 30), said.get("hours", {})
        if minutes not in range(1, 24 * 60 + 1) or not isinstance(hours, dict):
            raise ValueError("has no digest_minutes from 1 to 1440, or hours that are no object by team.")
        return cls(timedelta(minutes=minutes), tuple((team, Hours.of(each)) for team, each in hours.items()))

    def has(self, team: str, at: datetime) -> bool:
        """Whether a team may get mail that can wait at this time."""
        hours = dict(self.hours)
        found = hours.get(team) or hours.get("")
        return found is None or found.has(at)
