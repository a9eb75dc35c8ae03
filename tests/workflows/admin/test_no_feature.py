"""The console's own pages, where no feature is installed."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.urls import include, path

from tests.workflows import rows
from tests.workflows.admin.conftest import Login

LISTS = ("workflow", "workflow/?preset=unacknowledged", "workflow/?state=parked", "manualtask", "workerprocess")


def test_each_page_is_shown(as_: Login, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.features.installed.EXTENSIONS", ())
    site = admin.site._wrapped  # type: ignore[attr-defined]  # the site itself, not what finds it when it is first used
    own = {of: page for of, page in site._registry.items() if "features" not in page.__module__.split(".")}
    monkeypatch.setattr(site, "_registry", own)
    settings.ROOT_URLCONF = (
        path("admin/", include("staff.urls")),
        path("admin/", admin.site.urls),
        path("", include("workflows.api.urls")),
    )
    boss = as_("superuser")
    made = [rows.failed(), rows.given_up(), rows.parked(), rows.waiting(), rows.compensating()]
    pages = [
        *("", "needs-a-person/", "failures/", "find/", "incident/?workflow_type=parcel&step=charge&code=card_declined"),
        *(f"workflows/{each}" for each in LISTS),
        *(f"workflows/workflow/{row.pk}/{page}/" for row in made for page in ("change", "retry", "cancel")),
    ]
    shown = {page: boss.get(f"/admin/{page}", follow=True).status_code for page in pages}
    assert {page for page, status in shown.items() if status != 200} == set()
