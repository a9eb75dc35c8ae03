"""Error text without patient data: `str(exception)` may hold any value that the failing code was given."""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Container, Iterator
from typing import Any

import psycopg
from django.db import DatabaseError
from pydantic import BaseModel, PydanticUserError, ValidationError

MASK = "•••"
_MAX_LENGTH = 500
# No more of a text is read: the row is held meanwhile, and one error message was 4 MB long.
_MAX_READ = 20_000
_MAX_FAULTS = 20

# Up to the next quote that no backslash escapes, else the last one, else the end of the text: Python cuts a value after
# 200 characters. Possessive: nothing is read twice.
_QUOTED = re.compile(r"""(['"`])(?:(?:\\.|(?!\1)[^\\])*+\1|.*\1)|(?<!\w)['"`].*""", re.DOTALL)
# From the start of a word only: tried from each letter, one word of 20,000 took two seconds.
_EMAIL = re.compile(r"(?<![^\s@<>'\"])[^\s@<>'\"]+@[^\s@<>'\"]+")
_NUMBER = re.compile(r"(?<![A-Za-z]\.)(?:\d[\d\s().-]{2,}\d|\d{3,})")  # but not E.164, the standard

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/#-]{0,99}")


def scrub(text: str, *known: Any) -> str:
    """Return `text` (500 characters at most) without e-mail addresses, long numbers, or any value in `known`.

    `known` are JSON values, such as the payload and the context: every string and number of them is masked in the text,
    whatever its case.
    """
    text = text[:_MAX_READ]
    folded = text.casefold()
    values = {value for part in known for value in _leaves(part) if len(value) > 2 and value.casefold() in folded}
    for value in sorted(values, key=len, reverse=True):
        # Whole words: a patient named Count must not make "ac•••" of every account.
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", MASK, text, flags=re.IGNORECASE)
    text = _NUMBER.sub(MASK, _EMAIL.sub(MASK, text)).replace("\x00", "")
    return text.encode("utf-8", "replace").decode()[:_MAX_LENGTH]


def scrub_foreign(text: str, *known: Any, names: re.Pattern[str] | None = None) -> str:
    """`scrub` for text that is not ours: quoted text is masked, too, except the names that `names` finds."""
    text = text[:_MAX_READ]
    kept = {start for found in names.finditer(text) for start in _name_starts(found)} if names else ()
    return scrub(_QUOTED.sub(lambda quoted: quoted[0] if quoted.start() in kept else MASK, text), *known)


def names_of_code(error: BaseException) -> re.Pattern[str] | None:
    """The pattern of the names of arguments, types, attributes and columns in a message of this error's class.

    They are found only in the wording of Python and PostgreSQL, for the very classes that they raise: a message that a
    step makes may quote anything.
    """
    if type(error).__module__ == "builtins" and type(error).__name__ in _PYTHON_ERRORS:
        return _NAMES_IN_PYTHON_ERRORS
    if isinstance(error, psycopg.Error | DatabaseError):
        return _NAMES_IN_POSTGRESQL_ERRORS
    return None


_PYTHON_ERRORS = {
    "TypeError",
    "AttributeError",
    "NameError",
    "UnboundLocalError",
    "ImportError",
    "ModuleNotFoundError",
}
_NAME = r"""['"][A-Za-z_][A-Za-z0-9_.]{0,99}['"]"""
# Each group is a quoted name, or several.
_NAMES_IN_PYTHON_ERRORS = re.compile(
    rf"""
      (?:keyword\ argument|for\ (?:keyword\ )?argument|has\ no\ attribute|cannot\ access\ \w+\ variable|local\ variable
        |No\ module\ named|cannot\ import\ name|module|\(not)\ ({_NAME})
    | (?<!\S)name\ ({_NAME})\ is\ not\ defined
    | (?:required\ (?:positional\ |keyword-only\ )?arguments?:
        |operand\ type\(s\)\ for\ \S{{1,4}}
        |between\ instances\ of)\ ({_NAME}(?:(?:,|,?\ and)\ {_NAME})*)
    | ({_NAME})(?=\ object\ (?:is|has|cannot|does|doesn))
    | (?<=\ from\ )({_NAME})\ \(
    | (?:object|argument)\ of\ type\ ({_NAME})
    """,
    re.VERBOSE,
)
_NAMES_IN_POSTGRESQL_ERRORS = re.compile(rf"(?:column|relation|table|constraint|index|schema|type|function) ({_NAME})")


def _name_starts(found: re.Match[str]) -> Iterator[int]:
    """The positions of the quoted names in a match of a pattern of names."""
    for group in range(1, found.re.groups + 1):
        if found[group]:
            yield from (found.start(group) + name.start() for name in re.finditer(_NAME, found[group]))


def masked_reference(value: Any, *known: Any) -> str:
    """`value`, which a person has typed, as the history may hold it: in full if it reads like a reference.

    A reference is one word of letters and digits that repeats no value of `known` (JSON, such as the payload), whatever
    the case and the punctuation. A number alone keeps its last four digits, anything else nothing. `scrub` would mask
    every long number, and so the reference itself.
    """
    text = str(value)
    compact = _letters_and_digits(text)
    leaves = (_letters_and_digits(each) for part in known for leaf in _leaves(part) for each in (leaf, *leaf.split()))
    if not _REFERENCE.fullmatch(text) or any(_repeats(compact, leaf) for leaf in leaves) or compact.isalpha():
        return MASK
    if compact.isdigit():
        return f"{MASK}{compact[-4:]}" if len(compact) > 8 else MASK
    return text


def _repeats(compact: str, leaf: str) -> bool:
    """A shorter part (a height in centimetres, say) may be in a reference by chance."""
    return compact == leaf or (len(leaf) > 3 and leaf in compact) or (len(compact) > 3 and compact in leaf)


def _letters_and_digits(text: str) -> str:
    return re.sub(r"[\W_]", "", text[:_MAX_READ]).casefold()


def private_part(payload: Any, public_fields: Collection[str], path: str = "") -> Any:
    """`payload` without the fields that are no personal data (dotted names)."""
    if not isinstance(payload, dict):
        return payload
    return {
        name: private_part(value, public_fields, f"{path}{name}.")
        for name, value in payload.items()
        if f"{path}{name}" not in public_fields
    }


def field_errors(error: ValidationError) -> str:
    """The fields that a model refuses, and why; never their values."""
    return ", ".join(f"{'.'.join(map(str, fault['loc']))} ({fault['type']})" for fault in error.errors())


def field_errors_for_senders(error: ValidationError, model: type[BaseModel]) -> str:
    """The first refused fields, for the sender. Only the model's own names are shown: the sender's may be values."""
    try:
        known = _names_in(model.model_json_schema())
    except PydanticUserError:  # a field of a type that JSON schemas have no words for
        known = set(model.model_fields)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{_place(fault['loc'], known) or 'all of it'} ({fault['type']})" for fault in found[:_MAX_FAULTS]]
    return ", ".join(shown) + (f" and {len(found) - len(shown)} more" if len(found) > len(shown) else "")


def _place(loc: tuple[int | str, ...], known: Container[str]) -> str:
    return ".".join(str(part) if isinstance(part, int) or part in known else MASK for part in loc)


def _names_in(schema: Any) -> set[str]:
    """The names of all fields in a JSON schema."""
    if isinstance(schema, list):
        return {name for part in schema for name in _names_in(part)}
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties")
    return (set(own) if isinstance(own, dict) else set()) | {n for part in schema.values() for n in _names_in(part)}


def frames(error: BaseException) -> str:
    """Where `error` came from, one frame a line and the causes first: files, lines and functions, never values."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(lines) < 200:
        stack = [f"  {f.filename}:{f.lineno} in {f.name}" for f in traceback.extract_tb(cause.__traceback__)]
        lines = [*stack, class_name(cause), *lines]
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\n".join(lines)


def class_name(error: BaseException) -> str:
    """The error's class with its module, as people search for it; builtins without."""
    cls = type(error)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield str(value)
