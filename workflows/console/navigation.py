"""The bar on every page: the pages that people work with, as far as this user may see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

# Label, page, and the permissions; one of them is enough.
PAGES = (
    ("Find", "admin:find", ["workflows.view_workflow"]),
    ("Needs a person", "admin:needs_a_person", ["workflows.view_manualtask", "workflows.view_workflow"]),
    ("Workflows", "admin:workflows_workflow_changelist", ["workflows.view_workflow"]),
    ("Inbox", "admin:workflows_manualtask_changelist", ["workflows.view_manualtask"]),
    ("Failures", "admin:failures", ["workflows.view_workflow"]),
    ("Bulk operations", "admin:workflows_bulkoperation_changelist", ["workflows.view_bulkoperation"]),
    ("Services", "admin:workflows_service_changelist", ["workflows.view_service"]),
    ("Queues", "admin:workflows_pace_changelist", ["workflows.view_pace"]),
    ("Workers", "admin:workflows_workerprocess_changelist", ["workflows.view_workerprocess"]),
    ("Audit", "admin:audit", ["workflows.view_audit"]),
)


@dataclass(frozen=True, slots=True)
class Item:
    """`current` is the value of aria-current: "page" on the page itself, "true" on a page below it, else empty."""

    label: str
    url: str
    current: str


def bar(request: HttpRequest) -> list[Item]:
    has_perm = request.user.has_perm
    seen = [(label, reverse(name)) for label, name, permissions in PAGES if any(map(has_perm, permissions))]
    return [Item(label, url, _current(request.path, url)) for label, url in seen]


def more(apps: Sequence[Mapping[str, Any]], bar: Sequence[Item]) -> list[tuple[str, str]]:
    """The lists that are not in the bar: label and address."""
    shown = {item.url for item in bar}
    models = [model for app in apps for model in app["models"] if model["admin_url"]]
    return [(model["name"], model["admin_url"]) for model in models if model["admin_url"] not in shown]


def _current(path: str, url: str) -> str:
    if path == url:
        return "page"
    return "true" if path.startswith(url) else ""
