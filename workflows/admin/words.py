"""How the console writes times, errors, names and masked data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from workflows.wording import length
from workflows.wording import plain as plain

MASK = "••••"

# The names of fields that are shown. Clients write some of the keys, and one can be an e-mail address.
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_FIELDS_SHOWN = 100


def clock(at: datetime | None) -> str:
    """A time as people say it: `14:02:07 UTC` today, `2026-03-01 14:02 UTC` on another day."""
    if at is None:
        return "an unknown time"
    return f"{at:%H:%M:%S} UTC" if at.date() == timezone.now().date() else f"{at:%Y-%m-%d %H:%M} UTC"


def age(since: datetime) -> str:
    """How long ago, in the largest unit that fits: `26 min`."""
    seconds = (timezone.now() - since).total_seconds()
    return length(seconds) if seconds >= 60 else "now"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def error(*, code: str = "", error_class: str = "", message: str = "") -> str:
    """An error in one line: its code, or its class where it has none, and its message."""
    return ": ".join(part for part in (code or error_class, message) if part)


# Answers to questions about a call or about its undo.
SAID = {
    "happened": "It happened",
    "did_not_happen": "It did not happen",
    "undone_by_hand": "Reversed by hand",
    "left_as_it_is": "Left as it is",
    "try_again": "To be tried again",
}


# The types of the engine's own questions.
TASK_TYPES = {
    "effect_in_doubt": "Unclear call",
    "undo_in_doubt": "Failed reversal",
    "step_undeclared": "Step that is gone",
    "keeps_dying": "Workers keep dying",
    "keeps_being_lost": "Workers keep losing it",
}


def task_type(name: str) -> str:
    return TASK_TYPES.get(name) or plain(name)


def answered(detail: Mapping[str, Any]) -> str:
    """The result of a call that happened, or the reference of one that was undone: `charge_id ch_1, status paid`."""
    fields = detail.get("fields") or {}
    named = fields if isinstance(fields, Mapping) else {}
    if detail.get("reference"):
        named = {"reference": detail["reference"]}
    return ", ".join(f"{name} {value}" for name, value in sorted(named.items()))


def badge(kind: str, label: str) -> SafeString:
    return format_html('<span class="badge badge-{}">{}</span>', kind, label)


def masked_tail(value: str | None) -> str:
    """The last four characters of an identifier, enough to compare it with another one."""
    if not value:
        return ""
    return f"{MASK}{value[-4:]}" if len(value) > 8 else MASK


def masked_fields(data: Any) -> list[tuple[str, str]]:
    """The names of the fields of a payload or a context, `patient.email` for a nested one; and no values."""
    fields = _fields(data)
    shown = [field for field, _ in zip(fields, range(_FIELDS_SHOWN), strict=False)]
    return shown + [("…", "more fields")] * (next(fields, None) is not None)


def _fields(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if not isinstance(data, Mapping) or not data:
        yield path or "(nothing)", MASK if path else ""
        return
    for key, value in data.items():
        name = key if _FIELD_NAME.fullmatch(key) else "(a name that is not shown)"
        yield from _fields(value, f"{path}.{name}" if path else name)
