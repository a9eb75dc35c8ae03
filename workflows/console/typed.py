"""Form fields for a time or a day, in the zone that the page has named.

The form sends that zone back. If the user's zone has changed by then, the user has to type it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from workflows import times


class _Zoned:
    """A widget that sends the zone in a field beside its own."""

    def value_from_datadict(self, data: Mapping[str, Any], files: Any, name: str) -> Any:
        typed = super().value_from_datadict(data, files, name)  # type: ignore[misc]
        return Typed(typed, data.get(f"{name}_zone", "")) if typed else typed

    def render(self, name: str, value: Any, *args: Any, **kwargs: Any) -> SafeString:
        field = super().render(name, value, *args, **kwargs)  # type: ignore[misc]
        return format_html('{}<input type="hidden" name="{}_zone" value="{}">', field, name, times.zone())


class Typed(str):
    """What was typed, and the zone that the page named; empty if none."""

    zone: str

    def __new__(cls, text: str, zone: str) -> Typed:
        typed = super().__new__(cls, text)
        typed.zone = zone
        return typed


class _TimeInput(_Zoned, forms.DateTimeInput):
    pass


class _DayInput(_Zoned, forms.DateInput):
    pass


class TimeField(forms.DateTimeField):
    """A time, converted to UTC. Refuses a time that the clock skips, or shows twice."""

    def __init__(self, *, step: str = "", **options: Any) -> None:
        attrs = {"type": "datetime-local", **({"step": step} if step else {})}
        how = "%Y-%m-%dT%H:%M:%S" if step else "%Y-%m-%dT%H:%M"
        super().__init__(widget=_TimeInput(attrs=attrs, format=how), **options)

    def to_python(self, value: Any) -> datetime | None:
        _refuse_other_zone(value)
        with timezone.override(UTC):  # parse it as typed, without a conversion
            typed = super().to_python(value)
        _require_shown_everywhere(typed, self)
        if typed is None or not isinstance(value, str) or _names_offset(value):
            return typed and typed.astimezone(UTC)
        local = typed.replace(tzinfo=timezone.get_current_timezone())
        if times.is_twice(local):
            raise ValidationError(_not_a_time(local))
        return local.astimezone(UTC)


class DayField(forms.DateField):
    """A day in the user's zone, converted to its first moment in UTC."""

    def __init__(self, **options: Any) -> None:
        super().__init__(widget=_DayInput(attrs={"type": "date"}, format="%Y-%m-%d"), **options)

    def clean(self, value: Any) -> Any:
        _refuse_other_zone(value)
        day = super().clean(value)
        _require_shown_everywhere(day, self)
        return times.start_of(day) if isinstance(day, date) else day


def _require_shown_everywhere(typed: date | None, field: forms.Field) -> None:
    """Refuse Python's first and last year: in other zones they contain times that Python does not know."""
    if typed and not MINYEAR < typed.year < MAXYEAR:
        raise ValidationError(field.error_messages["invalid"], code="invalid")


def _refuse_other_zone(value: Any) -> None:
    if isinstance(value, Typed) and value.zone not in ("", times.zone()):
        raise ValidationError(
            f"You typed this for another time zone, and your browser is in {times.zone()} now. Type it again."
        )


def _names_offset(text: str) -> bool:
    """Whether the text itself has an offset from UTC, which no browser's field sends."""
    try:
        return datetime.fromisoformat(text.strip()).tzinfo is not None
    except ValueError:
        return False


def _not_a_time(local: datetime) -> str:
    twice = local.astimezone(UTC).astimezone(local.tzinfo).replace(tzinfo=None) == local.replace(tzinfo=None)
    why = "comes twice that day" if twice else "does not come that day"
    return f"{local:%H:%M} {why} in {times.zone()}: the clock is changed. Type another time."
