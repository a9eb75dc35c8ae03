"""CORRECTABLE: which fields of a payload people may correct when its workflow has failed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, RootModel
from pydantic.fields import FieldInfo

from workflows.spelling import did_you_mean, explain_options

# Types that one form field can hold. Pydantic's secret types are not among them.
VALUES = (str, int, float, Decimal, UUID, date, datetime, Enum)
NUMBERS = (int, float, Decimal)


@explain_options
@dataclass(frozen=True, slots=True)
class Correctable:
    """The correctable fields (dotted), each with the names of the `once` steps whose calls use it; `()` for none.

    `model` is what the first step parses the payload with; a RootModel if there are several kinds. Raises ValueError
    for a field that the model lacks, a secret, or a field that is not a single value.
    """

    model: type[BaseModel]
    fields: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        for field in self.fields:
            info = self.find(field)
            if info is None:
                raise ValueError(
                    f"{self.model.__name__} has no field {field!r} that could be corrected."
                    f"{did_you_mean(field, self.model.model_fields)}"
                )
            if not _holds(info.annotation, VALUES):
                raise ValueError(f"{field!r} cannot be corrected: it is a secret, or no single value.")

    def find(self, field: str) -> FieldInfo | None:
        """The model's field; None if the model has no field of that name or reads it by an alias."""
        return _find(self.model, field.split("."))

    def is_number(self, field: str) -> bool:
        info = self.find(field)
        return info is not None and _holds(info.annotation, NUMBERS)

    def passed_on_by(self, fields: Collection[str]) -> set[str]:
        return {step for field in fields for step in self.fields.get(field, ())}


def _find(kind: Any, path: Sequence[str]) -> FieldInfo | None:
    name, *inner = path
    for model in _models(kind):
        info = model.model_fields.get(name)
        if info is not None and not info.validation_alias:
            found = _find(info.annotation, inner) if inner else info
            if found:
                return found
    return None


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    """The models that a type may stand for: those of a RootModel, and each member of a union."""
    if get_origin(kind) in (Annotated, Union, UnionType):
        for each in get_args(kind):
            yield from _models(each)
    elif isinstance(kind, type) and issubclass(kind, RootModel):
        yield from _models(kind.model_fields["root"].annotation)
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind


def _holds(kind: Any, values: tuple[type, ...]) -> bool:
    """Whether a type is one of these, optionally with None."""
    match get_origin(kind):
        case origin if origin is Annotated:
            return _holds(get_args(kind)[0], values)
        case origin if origin in (Union, UnionType):
            return all(_holds(each, values) for each in get_args(kind) if each is not NoneType)
        case origin if origin is Literal:
            return all(isinstance(each, values) for each in get_args(kind))
    return isinstance(kind, type) and issubclass(kind, values)
