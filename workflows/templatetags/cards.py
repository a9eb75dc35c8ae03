"""The lists of the console: their times; and on a phone, where each row is a card, what column a cell is of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

register = template.Library()


@register.filter
def moment(at: datetime) -> SafeString:
    """A time in a list, to the minute. A script shows it by the clock of who reads it, with UTC when pointed at."""
    exact, short = f"{at:%Y-%m-%d %H:%M:%S}", f"{at:%Y-%m-%d %H:%M}"
    return format_html('<time datetime="{}" title="{} UTC" data-local>{} UTC</time>', at.isoformat(), exact, short)


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
