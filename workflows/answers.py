"""What the answer to a manual task must hold, where a yes or no is not enough: a Pydantic model, named by its path."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.utils.module_loading import import_string
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from workflows.jsonb import Unstorable, as_json, ensure_storable
from workflows.scrub import frames

logger = logging.getLogger(__name__)


class NoSuchModel(LookupError):
    """This release does not have the model: it was renamed, or is of another release."""


class CheckFailed(Exception):
    """The model did not refuse the answer, it broke on it. The log says where; the message is for who answers."""


def model_at(path: str) -> type[BaseModel]:
    try:
        model = import_string(path)
    except ImportError:
        raise NoSuchModel(path) from None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise NoSuchModel(path)
    return model


def validated(model: type[BaseModel], answer: Mapping[str, Any]) -> dict[str, Any]:
    """`answer` as `model` understands it, in the JSON form from which the model can be read again.

    As it was given where the model writes what it cannot read: a masked secret, another alias, a field left out.
    Raises pydantic's ValidationError, Unstorable for what is no JSON or cannot be kept as such, and CheckFailed.
    """
    try:
        given = as_json(answer)
    except (PydanticSerializationError, UnicodeError):
        raise Unstorable("not_json", "It holds a value that has no form in JSON.") from None
    try:
        told = _told(model, given)
    except ValidationError:
        raise
    except Exception as error:  # its message may quote the answer
        logger.error("%s broke on an answer:\n%s", model.__qualname__, frames(error))
        raise CheckFailed("What checks the answer broke on it, and the error is ours: the log says where.") from None
    ensure_storable(told)
    return told


def _told(model: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    read = model.model_validate_json(to_json(given))
    told = read.model_dump(mode="json", by_alias=True, round_trip=True)
    try:
        same = model.model_validate_json(to_json(told)) == read
    except ValidationError:
        same = False
    return told if same else given
