"""The form of an answer: the fields of an approval besides yes."""

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
from django.forms.utils import ErrorDict
from pydantic import AliasChoices, AwareDatetime, BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined, to_jsonable_python

from workflows import times
from workflows.console.typed import TimeField
from workflows.operations import answer_models
from workflows.postgres.jsonb import Unstorable, ensure_storable
from workflows.telling import words
from workflows.wording import Wording, label_of_result, of_person

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


class YesForm(forms.Form):
    """The fields of an approval besides yes; if they are valid, `answer` has them. No field has a preset value.

    Without `asked`, for a rejection, the form shows what was typed and validates nothing. `conditional` fields may be
    required, depending on another field, so the page does not call them optional.
    """

    conditional: tuple[str, ...] = ()

    def __init__(self, data: Mapping[str, Any] | None = None, *, asked: bool = True) -> None:
        super().__init__(data, prefix="answer")
        self.asked = asked
        self.answer: dict[str, Any] = {}

    def full_clean(self) -> None:
        if self.asked:
            super().full_clean()
        else:
            self._errors = ErrorDict()
            self.cleaned_data = {}


class AnswerForm(YesForm):
    """The fields of a model, labelled by its titles or by `wording`. An empty field gets the model's default."""

    def __init__(
        self,
        model: type[BaseModel],
        data: Mapping[str, Any] | None = None,
        *,
        asked: bool = True,
        wording: Wording | None = None,
    ) -> None:
        super().__init__(data, asked=asked)
        self.model = model
        self.fields = {name: field_of(info) for name, info in model.model_fields.items()}
        for name, info in model.model_fields.items():
            self.fields[name].label = info.title or label_of_result(wording or Wording(), name)
            if example := wording and wording.examples.get(name):
                self.fields[name].help_text = f"{self.fields[name].help_text} For example {example}".strip()

    def clean(self) -> None:
        if self.errors:
            return
        given = {name: value for name, value in self.cleaned_data.items() if self._is_given(name, value)}
        try:
            self.answer = answer_models.validated(self.model, {self._key(name): value for name, value in given.items()})
        except ValidationError as error:
            self._add_errors(error)
        except (Unstorable, answer_models.AnswerModelBroke) as error:
            self.add_error(None, str(error))

    def _is_given(self, name: str, value: Any) -> bool:
        return value not in (None, "") or self.model.model_fields[name].is_required()

    def _key(self, name: str) -> str:
        """The name under which the model reads the field."""
        alias = self.model.model_fields[name].validation_alias
        offered = alias.choices if isinstance(alias, AliasChoices) else [alias]
        return next((each for each in offered if isinstance(each, str)), name)

    def _add_errors(self, error: ValidationError) -> None:
        names = {self._key(name): name for name in self.fields}
        for fault in error.errors(include_url=False, include_context=False, include_input=False):
            first, *inner = [str(part) for part in fault["loc"]] or [""]
            message = fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            self.add_error(names.get(first), f"{'.'.join(inner)}: {message}" if inner else message)


class ResultForm(YesForm):
    """The result of a call, for a step that does not say which fields it returns."""

    result = JsonField(
        label="Result, if it happened",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text='What the step returned, as a JSON object: {"charge_id": "ch_..."}. {} if it returned nothing.',
    )

    def clean_result(self) -> dict[str, Any]:
        result = self.cleaned_data["result"]
        try:
            if not isinstance(result, dict):
                raise ValueError
            ensure_storable(result)
        except ValueError:
            raise forms.ValidationError("Give a JSON object.") from None
        self.answer = result
        return result


class UndoForm(YesForm):
    """How a person settles a call that could not be undone. `never`: the choice that says it was never made."""

    conditional = ("reference",)
    how = forms.ChoiceField(
        label="What became of it",
        choices=[("undone", "It was reversed by hand"), ("kept", "It stays as it is")],
        widget=forms.RadioSelect,
        error_messages={"required": "Say which."},
    )
    reference = forms.CharField(
        label="Reference, if it was reversed by hand",
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text=of_person(
            "What it is found by in the other system: the number of the refund, say. No patient data, please."
        ),
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, asked: bool = True, never: str = "") -> None:
        super().__init__(data, asked=asked)
        if never:
            how = self.fields["how"]
            assert isinstance(how, forms.ChoiceField)
            how.choices = [*self.declared_fields["how"].choices, ("never", never)]  # type: ignore[attr-defined]

    def clean(self) -> None:
        how, reference = self.cleaned_data.get("how"), self.cleaned_data.get("reference")
        if how == "undone" and not reference and "reference" not in self.errors:
            self.add_error("reference", "What was reversed by hand has a reference in the other system.")
        if how in ("kept", "never") and reference:
            self.add_error("reference", "Only what was reversed by hand has a reference: leave it empty, or say that.")
        self.answer = {"kept": how == "kept", "reference": reference or "", "never_happened": how == "never"}


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
    return forms.UUIDField(widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))


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
