"""The database's clock. SQL makes the times that SQL compares: workers' clocks differ (and now() stands still)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import DateTimeField, Func


class ClockTimestamp(Func):
    """`clock_timestamp()`: the time now, where `now()` is the start of the transaction, seconds of steps ago."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """A time in microseconds since 1970: as exact as the database has it, and short in a link or a form."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(since_1970: int) -> datetime:
    """The time that `microseconds` made this number of."""
    return _EPOCH + timedelta(microseconds=since_1970)
