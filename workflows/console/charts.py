"""CHARTS as SVG from the server: they need no script, and have the colours of either theme.

A chart has a column for each period, with a mark for the value a week before; or a bar for each name, which links to
what it counts. The templates draw these objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

from workflows import times

# Units of the drawing, which the page scales.
WIDTH, HEIGHT = 240.0, 60.0
# The share of a column's width that is filled, its least height (so that 1 shows beside 1,000), a mark's height.
FILLED, LEAST, MARK = 0.8, 1.0, 1.5

Value = float | None  # None: nothing was measured


@dataclass(frozen=True, slots=True)
class Column:
    """A rectangle, the position of the mark for a week before (if any), and the time and both values in words."""

    at: str
    told: str
    told_before: str
    x: float
    y: float
    width: float
    height: float
    before: float | None
    url: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. `told` is the value of the whole range in words, `top` that of the highest column.

    `axis` has the labels below it, with their places in percent, `targets` what a finger hits: several columns at once.
    """

    title: str
    tone: str
    told: str
    told_before: str
    columns: Sequence[Column]
    top: str = ""
    axis: Sequence[tuple[float, str]] = ()
    targets: Sequence[Column] = ()
    moments: Sequence[tuple[float, str]] = ()  # lines across: the place, and the tone

    @property
    def drawn(self) -> str:
        """All columns as one path, because an element for each would take most of a page's time."""
        return _path((each.x, each.y, each.width, each.height) for each in self.columns if each.height)

    @property
    def marks(self) -> str:
        """The marks of a week before, as one path."""
        return _path((each.x, each.before, each.width, MARK) for each in self.columns if each.before is not None)

    def linked(self, starts: Sequence[datetime], together: int, url: Callable[[datetime, datetime], str]) -> Self:
        """The same chart, in which each column that counts something is a link, and so are so many columns `together`.

        `starts` has the start of each column, and the end of the last.
        """

        def link(first: int, number: int) -> Column:
            run = self.columns[first : first + number]
            counts = any(each.height for each in run)
            address = url(starts[first], starts[first + number]) if counts else ""
            return replace(run[0], width=_short(WIDTH / len(self.columns) * number), url=address)

        fine = [replace(each, url=link(at, 1).url) for at, each in enumerate(self.columns)]
        return replace(self, columns=fine, targets=[link(at, together) for at in range(0, len(fine), together)])

    def marked(self, since: datetime, until: datetime, moments: Iterable[tuple[datetime, str]]) -> Self:
        """The same chart, of that time, with a line at each of these moments, in its tone."""
        places = [(_short(WIDTH * ((at - since) / (until - since))), tone) for at, tone in moments]
        return replace(self, moments=places)

    @classmethod
    def draw(
        cls,
        title: str,
        tone: str,
        whole: tuple[Value, Value],
        values: Sequence[tuple[datetime, Value, Value]],
        *,
        tell: Callable[[Value], str],
        axis: Sequence[tuple[float, str]] = (),
    ) -> Self:
        """A chart of values by time, each with that of a week before. `tell` puts a value into words."""
        highest = max(each or 0.0 for _, *pair in values for each in pair)
        scale, width = HEIGHT / (highest or 1.0), WIDTH / len(values)
        drawn = [
            Column(
                times.minute(at),
                tell(value),
                tell(before),
                x=_short(number * width),
                y=_short(HEIGHT - (height := max(value * scale, LEAST) if value else 0.0)),
                width=_short(width * FILLED),
                height=_short(height),
                before=_short(HEIGHT - before * scale) if before else None,
            )
            for number, (at, value, before) in enumerate(values)
        ]
        return cls(title, tone, tell(whole[0]), tell(whole[1]), drawn, tell(highest) if highest else "", axis)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar. `percent` is its length as a share of the longest; `tone` names its colour: a state, or `bad`."""

    label: str
    told: str
    percent: float
    url: str
    tone: str


def bars(counted: Sequence[tuple[str, int, str, str]], *, tell: Callable[[int], str] = "{:,}".format) -> list[Bar]:
    """The bars of these counts: label, number, address and tone."""
    longest = max((number for _, number, *_ in counted), default=0) or 1
    return [Bar(label, tell(number), _short(100 * number / longest), *rest) for label, number, *rest in counted]


def _path(rectangles: Iterable[tuple[float, float, float, float]]) -> str:
    return " ".join(f"M{x} {y}h{width}v{height}h-{width}z" for x, y, width, height in rectangles)


def _short(number: float) -> float:
    return round(number, 2)
