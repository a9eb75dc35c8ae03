"""Finds values that JSON allows but PostgreSQL, or the next reader, cannot keep, before they are stored.

Python checks everything, because PostgreSQL's own refusal quotes the value in its answer and its log. Messages here
never contain a value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from pydantic_core import from_json, to_json

from workflows.redaction import why_not_json

# Far below Python's recursion limit and PostgreSQL's stack, and far above any form that a person fills in.
MAX_DEPTH = 64

# Digits after the point, including the exponent: a double needs 341. PostgreSQL allows 16,383, but writes them all
# whenever the row is read: a body full of 1e-16383 would return as 475 MB.
MAX_SCALE = 400

# Python's own limit for reading an integer (sys.int_info.default_max_str_digits): no worker could read a longer one.
MAX_DIGITS = 4_300

# Bytes of a result, a payload or an event. jsonb takes less than 256 MiB: a decision with more would fail for ever.
MAX_RESULT = 4 * 1024 * 1024

_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|([\[{])|([\]}])', re.DOTALL)  # possessive: linear on any text
_SUSPICIOUS_WORD = re.compile(rb"\\u|NaN|Infinity")
_SUSPICIOUS_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


class InputRefused(ValueError):
    """The input cannot be used. `code` is stable; the message is for the sender and quotes no value."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Malformed(InputRefused):
    """Not a JSON object in UTF-8."""


class Unstorable(InputRefused):
    """It is JSON, but PostgreSQL cannot store it unchanged."""


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object that PostgreSQL can store: its text as sent, with all digits, and the value that Python reads.

    It may be part of a larger text, at `path`. In a statement `SQL` stands for it, with its named `parameters`.
    """

    text: str
    value: dict[str, Any]
    path: tuple[str, ...] = ()

    SQL: ClassVar[str] = "(%(text)s::jsonb #> %(path)s::text[])"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"text": self.text, "path": list(self.path)}

    def part(self, name: str) -> Document:
        return Document(self.text, self.value[name], (*self.path, name))

    def __repr__(self) -> str:
        return "<Document>"


def document_of(value: Mapping[str, Any]) -> Document:
    return Document(json.dumps(value), dict(value))


def parse(body: bytes) -> Document:
    """Read a JSON object, or raise `Malformed` or `Unstorable`."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("not_utf8", "The body is not UTF-8.") from None
    if text.startswith("\ufeff"):
        raise Malformed("byte_order_mark", "The body begins with a byte order mark; JSON has none.")
    _refuse_depth(text)
    try:
        value = json.loads(
            text, parse_float=_float, parse_constant=_refuse_constant, object_pairs_hook=_object_of_unique_names
        )
    except json.JSONDecodeError as error:
        # Not `from error`: it carries the whole text.
        raise Malformed(
            "malformed_json", f"The body is not JSON: see line {error.lineno}, column {error.colno}."
        ) from None
    except Unstorable:
        raise
    except ValueError:  # an integer past sys.get_int_max_str_digits()
        raise _number_out_of_range() from None
    if not isinstance(value, dict):
        raise Malformed("not_an_object", "The body is JSON, but not an object.")
    if _SUSPICIOUS_ESCAPE.search(text):
        ensure_storable(value)
    return Document(text, value)


def ensure_storable(value: Any, depth: int = 0) -> None:
    """Raise `Unstorable` (a ValueError) unless jsonb can store a Python value and return it unchanged."""
    match value:
        case None | bool():
            pass
        case str():
            _refuse_text(value)
        case int():
            if value.bit_length() > MAX_DIGITS * 3 and abs(value) >= 10**MAX_DIGITS:
                raise _number_out_of_range()
        case float():
            if not math.isfinite(value):
                _refuse_constant("")
        case dict():
            _refuse_level(depth + 1)
            for name, item in value.items():
                if not isinstance(name, str):
                    raise Unstorable("not_json", f"A name in an object is of type {type(name).__name__}.")
                _refuse_text(name)
                ensure_storable(item, depth + 1)
        case list() | tuple():
            _refuse_level(depth + 1)
            for item in value:
                ensure_storable(item, depth + 1)
        case _:
            raise Unstorable("not_json", f"A value of type {type(value).__name__} has no form in JSON.")


def ensure_dump_storable(value: Any) -> None:
    """`ensure_storable` for a value that pydantic has written: faster if its JSON shows nothing wrong."""
    try:
        text = to_json(value)
    except (ValueError, TypeError):  # half of a surrogate pair, for example
        text = b"\\u"
    if _may_be_unstorable(text):
        ensure_storable(value)


def as_json(result: Mapping[str, Any]) -> dict[str, Any]:
    """A step's result in its JSON form. Raises Unstorable for what is no mapping, or has no JSON form."""
    try:
        text = to_json(dict(result))
    except (TypeError, ValueError) as error:
        raise Unstorable("not_json", why_not_json(result, error)) from error
    try:
        value: dict[str, Any] = from_json(text)
    except ValueError:  # an integer past MAX_DIGITS, which pydantic writes but does not read
        raise _number_out_of_range() from None
    if _may_be_unstorable(text):
        if len(text) > MAX_RESULT:
            raise Unstorable("too_large", "It is larger than 4 MiB. Keep it elsewhere, and write where it is.")
        ensure_storable(value)
    return value


def _may_be_unstorable(text: bytes) -> bool:
    """Whether JSON that pydantic has written may hold what `ensure_storable` refuses: a quick check.

    Pydantic escapes control characters, and writes NaN and infinity as words. JSON shorter than MAX_DIGITS cannot have
    a number that is too long.
    """
    size = len(text)
    if size > MAX_DIGITS or _SUSPICIOUS_WORD.search(text):
        return True
    return size > MAX_DEPTH and text.count(b"{") + text.count(b"[") > MAX_DEPTH


def _refuse_text(text: str) -> None:
    if "\x00" in text:
        raise Unstorable("null_character", "A string holds the null character, which PostgreSQL cannot keep.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unstorable(
            "lone_surrogate", "A string holds half of a surrogate pair, which is not a character."
        ) from None


def _refuse_depth(text: str) -> None:
    """Check the depth before parsing, because a recursive parser would fail on it."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _BRACKETS.finditer(text):
        if token[1]:
            depth += 1
            _refuse_level(depth)
        elif token[2]:
            depth -= 1


def _refuse_level(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Unstorable("too_deep", f"Objects and arrays are nested more than {MAX_DEPTH} levels deep.")


def _refuse_constant(_: str) -> NoReturn:
    raise Unstorable("not_finite", "A number is NaN or infinite.")


def _number_out_of_range() -> Unstorable:
    return Unstorable("number_out_of_range", "A number is too large, or has too many digits, to be kept.")


def _float(literal: str) -> float:
    mantissa, _, exponent = literal.lower().partition("e")
    scale = len(mantissa.partition(".")[2])
    # A longer exponent with a finite value is 0e999999, or practically zero.
    if len(exponent) > 6 or scale - int(exponent or 0) > MAX_SCALE:
        raise _number_out_of_range()
    value = float(literal)
    if math.isinf(value):
        raise _number_out_of_range()
    return value


def _object_of_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Unstorable("duplicate_name", "An object has the same name twice.")
    return value
