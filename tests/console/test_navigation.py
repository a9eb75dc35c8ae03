"""The bar on every page, and Home's first line, on a phone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.console.conftest import Open
from tests.workflows import rows

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_all_of_it_is_seen_and_nothing_is_wider_than_the_page(open_as: Open, theme: str) -> None:
    rows.failed()
    rows.workflow(invisible_until=timezone.now() - timedelta(hours=1))
    page = open_as("superuser", **PHONE, color_scheme=theme)
    for path in ("/admin/", "/admin/find/", "/admin/needs-a-person/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        links = page.locator(".bar a")
        assert links.all_inner_texts() == ["Find", "Needs a person", "Workflows", "Inbox", "Services", "Workers"]
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in map(_box, links.all()))
        assert all(_box(link)["height"] >= 24 for link in links.all())


def _box(link: object) -> dict[str, float]:
    return link.bounding_box()  # type: ignore[attr-defined, no-any-return]


def test_whether_all_is_well_is_read_at_once(open_as: Open) -> None:
    """No click, and no scrolling."""
    oldest = rows.workflow(invisible_until=timezone.now() - timedelta(minutes=20))
    rows.worker()
    page = open_as("superuser", **PHONE)
    assert page.inner_text(".health") == "In trouble: the oldest waits 20 min."
    assert page.locator(".health").bounding_box()["y"] < 700
    page.click(".health a")
    page.wait_for_url(f"**/admin/workflows/workflow/{oldest.pk}/change/")
