"""PANELS: parts of a page from features. A template has `{% for panel in panels.caller %}{% show panel %}`."""

from __future__ import annotations

from collections.abc import Iterable

from workflows.extension import Panel


def by_place(panels: Iterable[Panel]) -> dict[str, list[Panel]]:
    found: dict[str, list[Panel]] = {}
    for panel in panels:
        found.setdefault(panel.place, []).append(panel)
    return found
