"""A FILE of comma-separated values, streamed: its rows are read while it is sent."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from django.http import StreamingHttpResponse
from django.utils import timezone

# What a spreadsheet would run as a formula, also in full-width characters.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


class _Echo:
    """A file for `csv` that returns each row instead of storing it."""

    def write(self, row: str) -> str:
        return row


def answer(name: str, rows: Iterable[Iterable[object]]) -> StreamingHttpResponse:
    """The answer to a request for these rows: a file that has the name, and today's date in it.

    What has to be on record before the first byte is to be committed before this is called.
    """
    named = {"Content-Disposition": f'attachment; filename="{name}-{timezone.now():%Y-%m-%d}.csv"'}
    return StreamingHttpResponse(_lines(rows), content_type="text/csv; charset=utf-8", headers=named)


def _lines(rows: Iterable[Iterable[object]]) -> Iterator[str]:
    writer, ahead = csv.writer(_Echo()), iter(rows)
    while some := list(islice(ahead, 500)):
        yield "".join(writer.writerow(_safe(map(str, row))) for row in some)


def _safe(cells: Iterable[str]) -> list[str]:
    """The cells as text that no spreadsheet runs as a formula."""
    return [f"'{cell}" if _FORMULA.match(cell) else cell for cell in cells]
