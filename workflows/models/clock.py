"""The database's clock. Times that SQL compares are made by SQL: workers' clocks differ (and now() stands still)."""

from django.db.models import DateTimeField, Func


class ClockTimestamp(Func):
    """`clock_timestamp()`: the time now, where `now()` is the start of the transaction, seconds of steps ago."""

    function = "clock_timestamp"
    template = "%(function)s()"
    output_field = DateTimeField()
