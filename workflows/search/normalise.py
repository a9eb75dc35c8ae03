"""The possible readings of a text as a search key, likeliest first; none if it is nothing of the kind.

The first reading is stored, and all are searched. So what a website sent and what staff type match, however they were
written. Nothing here raises an error for any text; texts are short (`LONGEST_TEXT`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

# Zero-width characters and a byte order mark, which are copied along from web pages.
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"))
_IN_ANGLE_BRACKETS = re.compile(r"[^<>]*<([^<>]*)>")
_EMAIL = re.compile(r"[^\s@<>]+@[^\s@<>]+")

# An extension is not part of the number.
_EXTENSION = re.compile(r"(?:;ext=|ext\.?|x|#)\s*[0-9]{1,6}$")
_PHONE = re.compile(r"\+?[0-9()\[\] ./\u00b7\u2010-\u2015-]+")
# E.164's longest number, and the shortest that we accept.
_FEWEST_DIGITS, _MOST_DIGITS = 8, 15


def plain(text: str) -> Sequence[str]:
    """Any text that is not empty, in lower case, without surrounding spaces."""
    return [found] if (found := _plain(text)) else []


def email(text: str) -> Sequence[str]:
    """An e-mail address, in lower case. Dots, and a plus with what follows, are significant for most hosts."""
    plain = _plain(text).removeprefix("mailto:")
    if inside := _IN_ANGLE_BRACKETS.fullmatch(plain):
        plain = inside[1].strip()
    return [plain] if _EMAIL.fullmatch(plain) else []


def phone(country: str = "1") -> Callable[[str], Sequence[str]]:
    """A phone number, as the digits of E.164 without the plus; `country` is the code for numbers without one.

    If `country` is "1", `(555) 010-2323`, `555.010.2323 x12`, `1 555 010 2323`, `+1 555 010 2323` and `011 1 555 010
    2323` are the same number.
    """

    def read(text: str) -> Sequence[str]:
        plain = _EXTENSION.sub("", _plain(text).removeprefix("tel:")).strip()
        if not _PHONE.fullmatch(plain):
            return []
        digits = re.sub(r"[^0-9]", "", plain)
        readings = [digits] if plain.startswith("+") else _readings(digits, country)
        return [each for each in readings if _is_number(each)]

    return read


def _readings(digits: str, country: str) -> list[str]:
    """The readings of digits without a plus: with an international prefix, national, or with the country's code."""
    for prefix in ("00", "011"):
        if digits.startswith(prefix):
            return [digits.removeprefix(prefix)]
    if country == "1":  # the North American plan has national numbers of ten digits, and no others
        return [country + digits, digits] if len(digits) == 10 else [digits]
    if digits.startswith("0"):
        return [country + digits.removeprefix("0")]
    return [digits, country + digits] if digits.startswith(country) else [country + digits, digits]


def _is_number(digits: str) -> bool:
    return _FEWEST_DIGITS <= len(digits) <= _MOST_DIGITS and not digits.startswith("0")


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return folded.translate(_INVISIBLE).strip()
