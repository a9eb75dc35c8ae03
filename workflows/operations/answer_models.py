"""The Pydantic model of an answer to a manual task that needs more than yes or no.

A step names its model by its path. A question about a call's result gets a model of the context's fields.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from django.utils.module_loading import import_string
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, to_json

from workflows.postgres.jsonb import as_json, ensure_storable

logger = logging.getLogger(__name__)


class NoSuchModel(LookupError):
    """This release does not have the model: it was renamed, or belongs to another release."""


class AnswerModelBroke(Exception):
    """The model raised an error instead of refusing the answer. The message is for the user; the log says where."""


class DealtWith(BaseModel):
    """A person's answer about an undo that failed: the call is `kept`, never happened, or was undone by hand.

    `reference` says where the other system shows the undo by hand: the number of a refund, for example.
    """

    model_config = ConfigDict(extra="forbid")

    kept: StrictBool
    reference: Annotated[str, StringConstraints(strip_whitespace=True, max_length=200)] = ""
    never_happened: StrictBool = False

    @model_validator(mode="after")
    def _has_a_reference_if_undone(self) -> DealtWith:
        if self.kept and self.never_happened:
            raise PydanticCustomError("kept_of_nothing", "What never happened does not stay.")
        was_undone = not (self.kept or self.never_happened)
        if was_undone and not self.reference:
            raise PydanticCustomError("reference_missing", "What was reversed by hand has a reference.")
        if self.reference and not was_undone:
            raise PydanticCustomError("reference_of_nothing", "Only what was reversed by hand has a reference.")
        return self


class Decision(BaseModel):
    """A person's yes to a reversal; with `retry`, the workflow is retried instead."""

    model_config = ConfigDict(extra="forbid")

    retry: StrictBool = False


@cache
def result_model(context_class: type[BaseModel], names: tuple[str, ...]) -> type[BaseModel]:
    """The model of a result with these fields of the context, all required and not None."""
    fields: dict[str, Any] = {name: _required_field(context_class.model_fields[name]) for name in names}
    return create_model("Result", __config__=ConfigDict(extra="forbid"), **fields)


def _required_field(info: FieldInfo) -> tuple[Any, Any]:
    """The field without its default, its aliases (results are recorded by name) and its `| None`."""
    kind = _without_none(info.annotation)
    for limit in info.metadata:
        kind = Annotated[kind, limit]
    return kind, Field(title=info.title, description=info.description, json_schema_extra=info.json_schema_extra)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return Union.__getitem__(tuple(each for each in get_args(kind) if each is not NoneType))
    return kind


def is_choice(info: FieldInfo) -> bool:
    """Whether all possible values are words of the code: a Literal, an Enum, yes or no."""
    kind = _without_none(info.annotation)
    return get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum | bool))


def model_at(path: str) -> type[BaseModel]:
    try:
        model = import_string(path)
    except ImportError:
        raise NoSuchModel(path) from None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise NoSuchModel(path)
    return model


def validated(model: type[BaseModel], answer: Mapping[str, Any]) -> dict[str, Any]:
    """`answer` as `model` understands it, in a JSON form from which the model can be read again.

    Returns `answer` as given if the model writes what it cannot read (a masked secret, another alias, a field left
    out). Raises pydantic's ValidationError, Unstorable for what JSON cannot store, and AnswerModelBroke.
    """
    given = as_json(answer)
    try:
        value = _normalized(model, given)
    except ValidationError:
        raise
    except Exception as error:  # its message may quote the answer
        logger.error("%s broke on an answer", model.__qualname__, exc_info=error)
        raise AnswerModelBroke(
            "What checks the answer broke on it, and the error is ours: the log says where."
        ) from None
    ensure_storable(value)
    return value


def _normalized(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    read = model.model_validate_json(to_json(given))
    written = read.model_dump(mode="json", by_alias=True, round_trip=True)
    try:
        same = model.model_validate_json(to_json(written)) == read
    except ValidationError:
        same = False
    return written if same else given
