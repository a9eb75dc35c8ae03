"""The bar on every page: the main pages that this user may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from workflows.extension import InBar, installed

SEE, TASKS = "workflows.view_workflow", "admin:workflows_manualtask_changelist"
# The console's own pages. Features add theirs in between.
PAGES = (
    InBar(10, "Find", "admin:find", [SEE]),
    InBar(20, "For you", "admin:needs_a_person", ["workflows.view_manualtask", SEE], TASKS),
    InBar(30, "Workflows", "admin:workflows_workflow_changelist", [SEE]),
    InBar(50, "Failures", "admin:failures", [SEE]),
    InBar(90, "Workers", "admin:workflows_workerprocess_changelist", ["workflows.view_workerprocess"]),
)


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of the bar. `current` is aria-current: "page" on the page itself, "true" below it, else empty."""

    label: str
    url: str
    current: str


def bar(request: HttpRequest) -> list[Item]:
    has_perm = request.user.has_perm
    seen = [each for each in pages() if any(map(has_perm, each.permissions))]
    return [Item(each.label, reverse(each.url), _current(request.path, each)) for each in seen]


def pages() -> list[InBar]:
    return sorted([*PAGES, *(page for each in installed() for page in each.bar)])


def more(apps: Sequence[Mapping[str, Any]], bar: Sequence[Item]) -> list[tuple[str, str]]:
    """The lists that are not in the bar: label and address."""
    shown = {item.url for item in bar} | {reverse(TASKS)}  # the page is in the bar, under another address
    models = [model for app in apps for model in app["models"] if model["admin_url"]]
    return [(model["name"], model["admin_url"]) for model in models if model["admin_url"] not in shown]


def _current(path: str, page: InBar) -> str:
    urls = tuple(map(reverse, filter(None, (page.url, page.also))))
    if path in urls:
        return "page"
    return "true" if path.startswith(urls) else ""
