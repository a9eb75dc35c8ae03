"""How the console writes times, errors, names and masked data."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from workflows import times as times_of
from workflows.definition import WorkflowDefinition, definitions, wording_of_type
from workflows.errors import DUPLICATES
from workflows.models import ManualTask, State, Workflow
from workflows.models.workflow import PAUSED
from workflows.wording import Wording, known_words_for_code, label_of_result, length
from workflows.wording import plain as plain

MASK = "••••"

# Names of fields that may be shown. Clients choose some names, and one could be an e-mail address.
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_PATH = re.compile(rf"{_FIELD_NAME.pattern}(\.({_FIELD_NAME.pattern}|\d{{1,4}}))*")
_INDEX = re.compile(r"\.\d{1,4}")
_FIELDS_SHOWN = 100
# Characters of a value.
_LONGEST_SHOWN = 100


def clock(at: datetime | None) -> str:
    """`14:02:07 UTC` today, `2026-03-01 14:02 UTC` on another day; by the reader's clock: `15:02:07 Berlin time`."""
    return "an unknown time" if at is None else times_of.clock(at)


def until(at: datetime | None) -> str:
    """The end of a hold by the reader's clock and by UTC, because people in several places act on it."""
    return "an unknown time" if at is None else times_of.both(at)


def day(at: datetime) -> str:
    """`28 November`, by UTC, for patients; with the year if it is another one."""
    return f"{at.day} {at:%B}" if at.year == timezone.now().year else f"{at.day} {at:%B %Y}"


def age_of(since: datetime) -> SafeString:
    """The age, with the time itself as a tooltip."""
    return format_html('<time title="{}">{}</time>', times_of.utc(since), age(since))


def age(since: datetime) -> str:
    """The age in the largest unit that fits: `26 min`."""
    seconds = (timezone.now() - since).total_seconds()
    return length(seconds) if seconds >= 60 else "now"


def ended(sentence: str) -> str:
    """The text with a full stop, unless it ends with a mark."""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def error(*, code: str = "", error_class: str = "", message: str = "") -> str:
    """An error in one line: its code (or class) and its message."""
    return ": ".join(part for part in (code or error_class, message) if part)


def the_service(name: str) -> str:
    return f"the {name} service" if name else "a service"


def unnamed(text: str, service: str) -> str:
    """The text for users who may not see the services."""
    if not service:
        return text
    return text.replace(f"the {service} service", "a service").replace(f"the service {service}", "a service")


def in_a_row(number: int) -> str:
    """How often the same step has failed since it last passed."""
    return {1: "once", 2: "twice in a row"}.get(number, f"{number} times in a row")


# Answers to questions about a call or about its undo.
SAID = {
    "happened": "It happened",
    "did_not_happen": "It did not happen",
    "undone_by_hand": "Reversed by hand",
    "left_as_it_is": "Left as it is",
    "never_charged": "It was never charged",
    "never_happened": "It never happened",
    "try_again": "To be tried again",
    "reverse": "To be reversed",
    "retry": "To be retried, and not reversed",
    "by_hand": "Done by hand",
}


# The types of the engine's own questions.
TASK_TYPES = {
    "effect_in_doubt": "Unclear call",
    "undo_in_doubt": "Failed reversal",
    "possible_duplicate": "Possible duplicate",
    "before_undo": "Reversal to decide",
    "step_undeclared": "Step or wait that is gone",
    "keeps_dying": "Workers keep dying",
    "keeps_being_lost": "Workers keep losing it",
    "secrets_unreadable": "Secrets that cannot be read",
}


def task_type(name: str) -> str:
    return TASK_TYPES.get(name) or plain(name)


# The groups that `migrate` makes, and several people are in.
_TEAMS = {each: f"{each.capitalize()}s" for each in ("support lead", "approver", "engineer", "auditor")}


def team(name: str) -> str:
    """A team as people are named after it: several engineers are in the group `engineer`."""
    return _TEAMS.get(name) or capfirst(name)


def workflow_type(name: str) -> str:
    """The title of a type of workflow."""
    return wording_of_type(name).title or plain(name)


def label_of_field(definition: WorkflowDefinition, field: str) -> str:
    """The label of a payload's field: of those that verify a caller, the correctable model's, or made of its name."""
    info = definition.correctable.find(field) if definition.correctable else None
    own = next((each.label for each in definition.wording.caller if each.path == field), None)
    return own or (info.title if info else None) or plain(field.rpartition(".")[2])


def next_attempt_at(row: Workflow) -> datetime | None:
    """When a worker takes a workflow up by itself; None if that hangs on something else: a pause, a service, a cause.

    What is parked is due in the end, too, so that nothing is parked for ever: that is no next attempt.
    """
    is_parked = bool(row.parked_on) and row.invisible_until > timezone.now()
    waits = row.status != Workflow.Status.PENDING or row.waiting_for == PAUSED or is_parked
    return None if waits else row.invisible_until


class Fault(NamedTuple):
    """A field of what was sent, its label, and what is wrong with it; never its value."""

    field: str
    label: str
    wrong: str


def told_faults(workflow: Workflow) -> list[Fault]:
    """The fields that its last error names as missing or wrong; empty unless the words of its code say that it does.

    Leaves out what does not look like a name in the definition.
    """
    definition = definitions().get(workflow.workflow_type)
    code = known_words_for_code(wording_of_type(workflow.workflow_type), workflow.last_error_code)
    if definition is None or code is None or not code.names_fields:
        return []
    told = (each.partition(": ") for each in workflow.last_error_message.split("; "))
    named = [(field, wrong) for field, _, wrong in told if wrong and _PATH.fullmatch(field)]
    return [Fault(field, label_of_field(definition, _INDEX.sub("", field)), ended(wrong)) for field, wrong in named]


def answered(detail: Mapping[str, Any], wording: Wording) -> str:
    """The result of a call that happened, or the reference of an undone one: `Charge ch_1, Payment paid`."""
    fields = detail.get("fields") or {}
    if isinstance(fields, str):  # deleted
        return fields
    named = dict(fields) if isinstance(fields, Mapping) else {}
    if detail.get("reference"):
        named["reference"] = detail["reference"]
    return ", ".join(f"{label_of_result(wording, name)} {value}" for name, value in sorted(named.items()))


def badge(kind: str, label: str) -> SafeString:
    return format_html('<span class="badge badge-{}">{}</span>', kind, label)


def task_badge(row: ManualTask) -> SafeString:
    """The state of a task. An answer to a question of the engine's approves nothing, and rejects nothing."""
    if row.task_type in TASK_TYPES and row.state in (ManualTask.State.APPROVED, ManualTask.State.REJECTED):
        return badge(ManualTask.State.APPROVED, "Answered")
    return badge(row.state, row.get_state_display())


def state_badge(row: Workflow) -> SafeString:
    return badge(state_tone(row), state_label(row))


def state_tone(row: Workflow) -> str:
    """The name of its colour: a duplicate is nothing that went wrong."""
    return str(State.CANCELLED if _is_duplicate(row) else State(row.state))


def state_label(row: Workflow) -> str:
    """The state of a workflow for people: what is paused does not read as waiting, nor a duplicate as failed."""
    if _is_duplicate(row):
        return "Duplicate"
    paused = row.state == State.WAITING and row.waiting_for == PAUSED
    return "Paused" if paused else State(row.state).label


def _is_duplicate(row: Workflow) -> bool:
    return row.state == State.FAILED and row.last_error_code in DUPLICATES


def masked_tail(value: str | None) -> str:
    """The last four characters of an identifier, enough to compare it with another."""
    if not value:
        return ""
    return f"{MASK}{value[-4:]}" if len(value) > 8 else MASK


def masked_fields(
    data: Any, public: Collection[str] = (), parts: Mapping[str, Callable[[Any], str]] | None = None
) -> list[tuple[str, str]]:
    """The fields of a payload or a context (`patient.email` for a nested one), each with the part that may be shown.

    That is the value if the field, or one around it, is `public` (dotted names), else the part that `parts` gives, else
    a mask. A name that the sender made up is hidden, with everything below it.
    """
    fields = _fields(data, frozenset(public), parts or {})
    shown = [field for field, _ in zip(fields, range(_FIELDS_SHOWN), strict=False)]
    return shown + [("…", "more fields")] * (next(fields, None) is not None)


def _fields(
    data: Any,
    public: Collection[str],
    parts: Mapping[str, Callable[[Any], str]],
    path: str = "",
    *,
    shown: bool = False,
) -> Iterator[tuple[str, str]]:
    if not isinstance(data, Mapping) or not data:
        yield path or "(nothing)", _seen(data, parts.get(path), shown=shown) if path else ""
        return
    for key, value in data.items():
        name = key if _FIELD_NAME.fullmatch(key) else "(a name that is not shown)"
        inner = f"{path}.{name}" if path else name
        yield from _fields(value, public, parts, inner, shown=name == key and (shown or inner in public))


def _seen(data: Any, part: Callable[[Any], str] | None, *, shown: bool) -> str:
    """The part of a value that may be shown. Instead of a text or number a sender may have put anything there."""
    is_plain = is_scalar(data) or (isinstance(data, list) and all(map(is_scalar, data)))
    if shown and is_plain:
        return cut(value(data))
    return cut(part(data)) if part and is_text_or_number(data) else MASK


def cut(text: str) -> str:
    """As much of a sender's text as people read: nothing has checked its length yet."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def is_scalar(data: Any) -> bool:
    return data is None or isinstance(data, str | int | float)


def is_text_or_number(data: Any) -> bool:
    """Whether it has a value, and is neither an object nor a list."""
    return isinstance(data, str | int | float) and not isinstance(data, bool) and data != ""


def value(data: Any) -> str:
    """A JSON value as people read it."""
    match data:
        case None:
            return "not given"
        case bool():
            return "yes" if data else "no"
        case list():
            return ", ".join(map(value, data)) or "none"
        case dict():
            return "; ".join(f"{label}: {value(part)}" for label, part in data.items())
    return str(data)
