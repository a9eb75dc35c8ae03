"""A form's field for each field of a pydantic model, by its type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from django import forms
from django.forms.fields import InvalidJSONInput
from pydantic import AwareDatetime
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from workflows import times
from workflows.console.typed import TimeField
from workflows.telling import words

# The longest text with a one-line field: an e-mail address. A model with json_schema_extra={"format": "textarea"} gets
# more lines.
ONE_LINE = 254


class JsonField(forms.JSONField):
    """JSON that a user types. If it is invalid, the field has an error and still shows the typed text."""

    empty_values = (None, "")  # [] and {} say something

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)  # no `null` that the user has not typed

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError):  # an integer of 5,000 digits, 5,000 brackets
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        # Django would parse and dump it, and fail at the same values, or at half a surrogate pair.
        return None if data is None else InvalidJSONInput(data)


def field_of(info: FieldInfo) -> forms.Field:
    """The form's field for a model's field, by its type; a JSON field for other types."""
    kind, limits, nullable = _unwrapped(info.annotation, info.metadata)
    make = _choices(kind) or (_BY_TYPE.get(kind, _json) if isinstance(kind, type) else _json)
    field = make(limits=limits, info=info)
    if info.description:
        zone = f" {field.help_text}" if isinstance(field, TimeField) else ""  # a time always names its zone
        field.help_text = f"{info.description}{zone}"
    field.required = info.is_required() and not nullable
    field.widget.is_required = field.required
    field.initial = _initial(field, info.default)
    if nullable and isinstance(field, forms.CharField):
        field.empty_value = None
    if isinstance(field, forms.ChoiceField) and field.initial is None:
        field.choices = _no_choice(field) + list(field.choices)  # type: ignore[arg-type]  # ours are lists
    return field


def _unwrapped(kind: Any, metadata: Iterable[Any]) -> tuple[Any, list[Any], bool]:
    """The type without `Annotated` and `| None`, its constraints (such as a maximum length), and if None is allowed."""
    limits, nullable = list(metadata), False
    while True:
        arguments = get_args(kind)
        if get_origin(kind) is Annotated:
            kind, *said = arguments
            for more in said:
                limits += more.metadata if isinstance(more, FieldInfo) else [more]
        elif get_origin(kind) in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
            kind, nullable = next(argument for argument in arguments if argument is not NoneType), True
        else:
            return kind, limits, nullable


def _limit(limits: Sequence[Any], name: str) -> Any:
    return next((value for limit in limits if (value := getattr(limit, name, None)) is not None), None)


# --- Fields by type -----------------------------------------------------------------------------


def _text(*, limits: Sequence[Any], info: FieldInfo) -> forms.Field:
    longest, shortest = _limit(limits, "max_length"), _limit(limits, "min_length")
    extra = info.json_schema_extra
    asked_for = isinstance(extra, Mapping) and extra.get("format") == "textarea"
    long = asked_for or max(longest or 0, shortest or 0) > ONE_LINE
    widget = forms.Textarea(attrs={"rows": 4}) if long else forms.TextInput(attrs={"autocomplete": "off"})
    return forms.CharField(max_length=longest, min_length=shortest, widget=widget)


def _number(field: type[forms.IntegerField], *, limits: Sequence[Any], info: FieldInfo) -> forms.Field:
    return field(min_value=_limit(limits, "ge"), max_value=_limit(limits, "le"))


def _uuid(*, limits: Sequence[Any], info: FieldInfo) -> forms.Field:
    return forms.UUIDField(
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        error_messages={"invalid": "Not of this kind: it has 32 digits and letters from a to f, and dashes."},
    )


def _date(*, limits: Sequence[Any], info: FieldInfo) -> forms.Field:
    return forms.DateField(widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))


def _datetime(*, limits: Sequence[Any], info: FieldInfo) -> forms.Field:
    return TimeField(step="any", help_text=f"In {times.zone()}.")


def _bool(*, limits: Sequence[Any], info: FieldInfo) -> forms.Field:
    """Two choices instead of a checkbox, which says no when it is overlooked."""
    return forms.TypedChoiceField(
        choices=[("true", "Yes"), ("false", "No")],
        coerce=lambda key: key == "true",
        empty_value=None,
        widget=forms.RadioSelect,
    )


def _json(*, limits: Sequence[Any], info: FieldInfo) -> forms.Field:
    return JsonField(widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}), help_text="As JSON.")


_BY_TYPE: dict[Any, Callable[..., forms.Field]] = {
    str: _text,
    int: partial(_number, forms.IntegerField),
    float: partial(_number, forms.FloatField),
    Decimal: partial(_number, forms.DecimalField),
    bool: _bool,
    UUID: _uuid,
    date: _date,
    datetime: _datetime,
    AwareDatetime: _datetime,
}


def _choices(kind: Any) -> Callable[..., forms.Field] | None:
    """A select of the values, for a Literal or an Enum."""
    if get_origin(kind) is Literal:
        values = {_key(value): value for value in get_args(kind)}
        labels = {key: words.plain(key) for key in values}
    elif isinstance(kind, type) and issubclass(kind, Enum):
        values = {_key(member): member.value for member in kind}
        labels = {_key(member): str(getattr(member, "label", words.plain(_key(member)))) for member in kind}
    else:
        return None

    def make(**_: Any) -> forms.Field:
        return forms.TypedChoiceField(choices=list(labels.items()), coerce=values.__getitem__, empty_value=None)

    return make


def _key(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _no_choice(field: forms.ChoiceField) -> list[tuple[str, str]]:
    """The empty choice, so that an overlooked field chooses nothing."""
    if not field.required:
        return [("", "Not said")]
    return [] if isinstance(field.widget, forms.RadioSelect) else [("", "Choose")]


def _initial(field: forms.Field, default: Any) -> Any:
    if default in (None, PydanticUndefined, Ellipsis):
        return None
    if isinstance(field, forms.ChoiceField):
        return _key(default).lower() if isinstance(default, bool) else _key(default)
    return to_jsonable_python(default, fallback=str) if isinstance(field, forms.JSONField) else default
