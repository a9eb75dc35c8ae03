"""Error text without patient data: `str(exception)` may hold any value that the failing code was given."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
import unicodedata
from collections.abc import Collection, Container, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, PydanticUserError, ValidationError

MASK = "•••"
_MAX_LENGTH = 500
# No more of a text is read: the row is held meanwhile, and one error message was 4 MB long.
_MAX_READ = 5_000
_MAX_FAULTS = 20

# From the start of a word only: tried from each letter, one word of 20,000 took two seconds.
_EMAIL = re.compile(r"(?<![^\s@<>'\"])[^\s@<>'\"]+@[^\s@<>'\"]+")
_NUMBER = re.compile(r"(?<![A-Za-z]\.)(?:\d[\d\s().-]{2,}\d|\d{3,})")  # but not E.164, the standard

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/#-]{0,99}")

# A word is letters and digits, and accents that stand apart from their letter. Chinese and Japanese have no spaces:
# there each character counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|(?:[^\W_\u3040-\u30ff\u3400-\u9fff]|[\u0300-\u036f])+")
# Of a longer value any so many words in a row are masked, for a text may quote a part. A name has so many at most.
_IN_A_ROW, _LONGEST_NAME = 5, 8
# How often a text may have been encoded. Each time it is read as a whole.
_MOST_ENCODED = 4

_PERCENT = re.compile(r"(?:(?:%|\\x)[0-9A-Fa-f]{2})+")
_ESCAPE = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+")


def scrub(text: str, *known: Any) -> str:
    """Return `text` (500 characters at most) without e-mail addresses, long numbers, or any value in `known`.

    `known` are JSON values, such as the payload and the context: every string and number of them is masked in the text,
    whatever its case, its accents, its punctuation, and whether the text has it percent-encoded or escaped; and so is
    each word of a name. Each part of the text and of `known` is looked at once.
    """
    text = _decoded(text[:_MAX_READ])
    words = list(_WORD.finditer(text))
    folded = [_folded(word[0]) for word in words]
    values = _phrases(known, set(folded))
    parts: list[str] = []
    end = 0  # of what is masked already
    for first, word in enumerate(words):
        lengths = (n for n in range(_IN_A_ROW, 0, -1) if first + n <= len(words))
        longest = next((n for n in lengths if " ".join(folded[first : first + n]) in values), 0)
        if longest:
            if word.start() > end or not parts:
                parts += [text[end : word.start()], MASK]
            end = max(end, words[first + longest - 1].end())
    masked = "".join([*parts, text[end:]])
    masked = _NUMBER.sub(MASK, _EMAIL.sub(MASK, masked))
    return "".join(each if each.isprintable() else " " for each in masked[:_MAX_LENGTH])


def _phrases(known: Collection[Any], in_text: Container[str]) -> set[str]:
    """What is masked of these values, of words that the text has: each value, or its parts; and each word of a name."""
    phrases: set[str] = set()
    for leaf in (leaf for part in known for leaf in _leaves(part)):
        words = _WORD.findall(leaf)
        folded = [_folded(word) for word in words]
        size = min(len(words), _IN_A_ROW)
        phrases.update(
            " ".join(folded[at : at + size]) for at in range(len(words) - size + 1) if size and folded[at] in in_text
        )
        if len(words) <= _LONGEST_NAME:  # small words of a name ("van", "the") are in other sentences, too
            capitals = [word[0].isupper() for word in words]
            phrases.update(
                word
                for word, is_capital in zip(folded, capitals, strict=True)
                if is_capital >= any(capitals) and word.isalpha()
            )
    return {phrase for phrase in phrases if len(phrase) > 2 or not phrase.isascii()}


def _folded(word: str) -> str:
    """The word without case and accents."""
    return word.lower() if word.isascii() else "".join(map(_plain, word))


@lru_cache(maxsize=4096)
def _plain(letter: str) -> str:
    """One by one: Python sorts a thousand accents on one letter in quadratic time."""
    apart = unicodedata.normalize("NFKD", letter.casefold())
    return "".join(each for each in apart if not unicodedata.combining(each))


def _decoded(text: str) -> str:
    """The text without percent-encoding and escapes."""
    for _ in range(_MOST_ENCODED):
        text = _PERCENT.sub(
            lambda found: bytes.fromhex(re.sub(r"%|\\x", "", found[0])).decode("utf-8", "replace"), text
        )
        text = _ESCAPE.sub(lambda found: _utf16(found[0]), text)
    return text


def _utf16(escapes: str) -> str:
    """The characters of escapes as in JSON, where some need two."""
    return bytes.fromhex(escapes.replace("\\u", "")).decode("utf-16-be", "replace")


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


def why_not_json(result: object, error: Exception) -> str:
    """Why a step's result has no form in JSON. Pydantic names the type of a value that it does not know."""
    if not isinstance(result, Mapping):
        return f"A dict is needed, like {{'parcel': 'p-1'}}, in place of a value of type {type(result).__name__}."
    if "UnicodeEncodeError" in str(error):
        return "A string holds half of a surrogate pair, which is not a character."
    unknown = re.search(r"unknown type: <class '([\w.<>]+)'>", str(error))
    return (
        f"A value{f' of type {unknown[1]}' if unknown else ''} has no form in JSON; write a text, a number or a dict."
    )


def field_errors(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """The fields that a model refuses, and why, with the types that `model` declares; never their values."""
    types = {name: field.annotation for name, field in model.model_fields.items()} if model else {}
    found = []
    for fault in error.errors():
        kind = types.get(str(fault["loc"][0])) if fault["loc"] else None
        declared = f", declared as {getattr(kind, '__name__', kind)}" if kind else ""
        found.append(f"{'.'.join(map(str, fault['loc']))} ({fault['type']}{declared})")
    return ", ".join(found)


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


_ENGINE = str(Path(__file__).parent)
# Code of others: Python's own, installed packages, and what has no file.
_LIBRARIES = (*{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}, "<")


def place(error: BaseException) -> str:
    """The file and line of a step that `error` came from, else of the engine; empty for one that was never raised."""
    met = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = [each for each in met if not each[0].startswith(_LIBRARIES)] or met
    of_steps = [each for each in ours if not each[0].startswith(_ENGINE)] or ours
    return f"{os.path.relpath(of_steps[-1][0], Path(_ENGINE).parent)}:{of_steps[-1][1]}" if of_steps else ""


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
