"""TIMES as people read and type them: in the zone of the reader, which is Django's current zone, and UTC elsewhere.

Only the pages of the console have readers (`workflows.console.zone`): the API, files, commands and workers say UTC.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from django.utils import timezone

# The first and last days that can be chosen: beyond them, some time zones have no such time.
EARLIEST, LATEST = date(1900, 1, 1), date(9999, 12, 30)
TICK = timedelta(microseconds=1)
MINUTE, SECOND = "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"


def zone() -> str:
    """The name of the reader's zone: `Europe/Berlin`, `UTC`."""
    return timezone.get_current_timezone_name()


def zone_named() -> str:
    """What stands behind a time: `Berlin time`, `UTC`."""
    area, _, place = zone().rpartition("/")
    return f"{place.replace('_', ' ')} time" if area and area != "Etc" else zone()


def offset() -> str:
    """How far the reader's zone is from UTC now: `UTC+5:30`."""
    minutes = int((timezone.localtime().utcoffset() or UTC.utcoffset(None)).total_seconds() // 60)
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'-' if minutes < 0 else '+'}{hours}{f':{rest:02}' if rest else ''}"


def clock(at: datetime) -> str:
    """`15:02:07 Berlin time` today, `2026-03-01 15:02 Berlin time` on another day."""
    local = timezone.localtime(at)
    return _named(at, "%H:%M:%S" if local.date() == timezone.localdate() else MINUTE)


def brief(at: datetime, now: datetime) -> str:
    """`15:02 Berlin time` on the day of `now`, with a date on another one."""
    return _named(at, "%H:%M" if timezone.localtime(at).date() == timezone.localtime(now).date() else MINUTE)


def minute(at: datetime) -> str:
    return _named(at, MINUTE)


def second(at: datetime) -> str:
    return _named(at, SECOND)


def both(at: datetime, *, dated: bool = False) -> str:
    """`15:30 (Europe/Berlin), 14:30 UTC`; with a date if it is not today's, or always."""
    utc, local = at.astimezone(UTC), timezone.localtime(at)
    dated = dated or local.date() != timezone.localdate()
    if zone() == "UTC":
        return f"{utc:{MINUTE if dated else '%H:%M'}} UTC"
    other = MINUTE if local.date() != utc.date() else "%H:%M"
    return f"{local:{MINUTE if dated else '%H:%M'}} ({zone()}), {utc:{other}} UTC"


def utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):{SECOND}} UTC"


def start_of(day: date) -> datetime:
    """The first moment of a reader's day, in UTC. A day may begin at 1 o'clock, and have 23 or 25 hours."""
    return datetime.combine(day, time.min, timezone.get_current_timezone()).astimezone(UTC)


def start_of_typed(text: str, *, later: int = 0) -> datetime | None:
    """`start_of` a day as a form sends it, `2026-11-29`, or so many days later. None if it is no date in range."""
    try:
        day = date.fromisoformat(text) + timedelta(later)
    except (ValueError, OverflowError):
        return None
    return start_of(day) if EARLIEST <= day < LATEST else None


def is_twice(local: datetime) -> bool:
    """Whether the clock of its zone shows this time twice, as it is put back; or never, as it is put forward."""
    return local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()


def _named(at: datetime, how: str) -> str:
    """The time by the reader's clock, with the name of the zone; a time that comes twice has UTC, too."""
    local = timezone.localtime(at)
    also = f" ({at.astimezone(UTC):%H:%M} UTC)" if is_twice(local) else ""
    return f"{local:{how}} {zone_named()}{also}"
