"""The lists of the console: their times; and on a phone, where each row is a card, what column a cell is of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django import template
from django.contrib.messages.storage.base import Message
from django.template import RequestContext
from django.utils import timezone
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from workflows import times
from workflows.extension import Panel
from workflows.operations.undoing import UNDO_FOR
from workflows.wording import of_person

register = template.Library()
# As `times.clock`, `brief`, `minute` and `second` write a time, before the name of its zone.
_CLOCK = r"(?:(\d{4}-\d{2}-\d{2}) )?(\d{2}:\d{2}(?::\d{2})?)"


register.filter("clock", times.clock)
register.filter("utc", times.utc)
register.filter("of_person", of_person)


@register.simple_tag(takes_context=True)
def show(context: RequestContext, panel: Panel) -> SafeString:
    """A part of the page that a feature brings."""
    assert context.template is not None  # the page's: it is being rendered
    with context.push(**panel.context):
        return context.template.engine.get_template(panel.template).render(context)


@register.simple_tag
def undo_of(message: Message) -> str:
    """The number of the task whose decision a message announces, if it can be undone; else empty."""
    return (message.extra_tags or "").partition("undo-")[2]


@register.simple_tag
def undo_for() -> int:
    """How long such a decision can be undone, in milliseconds: the message is shown as soon as it is made."""
    return UNDO_FOR * 1000


@register.filter
def moment(at: datetime) -> SafeString:
    """A time to the minute by the clock of who reads it, with the name of its zone; with UTC when pointed at."""
    return _time(at, times.minute(at))


@register.filter
def exact(at: datetime) -> SafeString:
    """The same to the second."""
    return _time(at, times.second(at))


@register.filter
def bare(at: datetime | None) -> SafeString | str:
    """The same without the zone, where `times_are` names it below."""
    return _time(at, f"{timezone.localtime(at):{times.SECOND}}") if at else ""


@register.filter
def timed(text: Any) -> SafeString:
    """A sentence, with each time in it as `moment` writes one. A time that came twice has UTC beside it already."""
    return mark_safe(re.sub(rf"{_CLOCK} {re.escape(times.zone_named())}", _pointed_at, conditional_escape(text)))  # noqa: S308 (escaped)


def _pointed_at(found: re.Match[str]) -> str:
    try:
        local = datetime.fromisoformat(f"{found[1] or timezone.localdate()} {found[2]}")
    except ValueError:  # somebody has typed it
        return found[0]
    at = local.replace(tzinfo=timezone.get_current_timezone())
    return found[0] if times.is_twice(at) else _time(at, found[0])


def short(at: datetime) -> SafeString:
    """The time to the minute without the zone, for a list: `times_are` names it below."""
    return _time(at, f"{timezone.localtime(at):{times.MINUTE}}")


def _time(at: datetime, told: str) -> SafeString:
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), times.utc(at), told)


@register.simple_tag
def times_are() -> str:
    """In which zone the page has its times."""
    if times.zone() == "UTC":
        return "Times are UTC."
    return f"Times are by your clock ({times.zone()}, {times.offset()} now); point at one to see it in UTC."


@register.filter
def labelled(cells: Iterable[SafeString], headers: Iterable[Mapping[str, Any]]) -> Iterator[SafeString]:
    """The cells of a row of a list as the admin makes them, each with its column's title in `data-label`.

    The column of boxes to tick has none.
    """
    for cell, header in zip(cells, headers, strict=True):
        tag, rest = cell[:3], cell[3:]  # `<td` or `<th`
        if tag not in ("<td", "<th") or "action-checkbox-column" in header.get("class_attrib", ""):
            yield cell
        else:
            label = format_html(' data-label="{}"', capfirst(header["text"]))
            yield mark_safe(f"{tag}{label}{rest}")  # noqa: S308 (both parts are safe already)


@register.filter
def sortable(headers: Iterable[Mapping[str, Any]], changelist: Any) -> Iterator[dict[str, Any]]:
    """The headers of a list as the admin makes them, each with what `KeysetList.sorted_by` says of its column."""
    for name, header in zip(changelist.list_display, headers, strict=True):
        sorted_as, url = changelist.sorted_by(name) if hasattr(changelist, "sorted_by") else ("", "")
        yield {**header, "sorted_as": sorted_as, "url": url}
