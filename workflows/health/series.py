"""SERIES: the metrics in Prometheus' text format, and how many of a family are told.

Prometheus stores each combination of labels for ever. Its client would write the same text in four times the time.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from workflows.definition import WorkflowDefinition
from workflows.health.families import Family, Histogram
from workflows.wording import ENGINE_CODES

# The most series of a family, whatever its labels: 5,000 lines are half a megabyte.
MOST_SERIES = 5_000


def declared(definition: WorkflowDefinition) -> int:
    """How many combinations of step and code a definition can produce, if each code has words."""
    return len(definition.steps) * len({*definition.wording.codes, *ENGINE_CODES})


def text(families: Iterable[Family | Histogram]) -> str:
    """All families, at most `MOST_SERIES` series of each, and the number of those left out."""
    left_out: list[tuple[Sequence[str], float]] = []
    lines: list[str] = []
    for family in families:
        lines += _lines(family, left_out)
    says = f"Series of a family beyond {MOST_SERIES}: not told."
    lines += _lines(Family("onramp_series_left_out", says, ["family"], left_out), [])
    return "".join(lines)


def _lines(family: Family | Histogram, left_out: list[tuple[Sequence[str], float]]) -> Iterator[str]:
    """The lines of a family. Adds to `left_out`. A histogram's buckets are one series."""
    kind, name, lines = _form(family)
    yield f"# HELP {name} {_escaped(family.says)}\n# TYPE {name} {kind}\n"
    number, names = 0, tuple(family.labels)
    values: Iterable[Any] = family.values
    for number, (labels, *told) in enumerate(values, 1):
        if number <= MOST_SERIES:
            yield lines(name, _labelled(names, tuple(labels)), *told)
    if number > MOST_SERIES:
        left_out.append(([family.name], number - MOST_SERIES))


def _form(family: Family | Histogram) -> tuple[str, str, Callable[..., str]]:
    if isinstance(family, Histogram):
        return "histogram", family.name, _histogram
    return ("counter", f"{family.name}_total", _number) if family.is_counter else ("gauge", family.name, _number)


@lru_cache(2 * MOST_SERIES)  # nearly all are told again at each scrape
def _labelled(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The labels of a series, in the order of their names."""
    return ",".join(f'{name}="{_quoted(value)}"' for name, value in sorted(zip(names, values, strict=True)))


def _number(name: str, labels: str, value: float) -> str:
    return f"{name}{{{labels}}} {float(value)!r}\n" if labels else f"{name} {float(value)!r}\n"


def _histogram(name: str, labels: str, buckets: Sequence[tuple[str, float]], total: float) -> str:
    told = [_number(f"{name}_bucket", f'le="{bound}",{labels}', number) for bound, number in buckets]
    return "".join([*told, _number(f"{name}_count", labels, buckets[-1][1]), _number(f"{name}_sum", labels, total)])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
