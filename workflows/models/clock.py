"""The database's clock. Times that SQL compares are made in SQL: workers' clocks differ, and now() stands still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import DateTimeField, Func


class ClockTimestamp(Func):
    """`clock_timestamp()`: the present. `now()` is the start of the transaction, many steps ago."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """A time in microseconds since 1970: as exact as the database's, and short in a link or a form."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(since_1970: int) -> datetime:
    """The reverse of `microseconds`."""
    return _EPOCH + timedelta(microseconds=since_1970)
