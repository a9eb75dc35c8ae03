"""The built site, read from its files in a browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site.__main__ import SITE, main


@pytest.mark.slow
def test_its_search_finds_a_page_and_nothing_is_asked_of_a_network(browser: Any) -> None:
    assert main() == 0
    asked: list[str] = []

    def note(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            asked.append(request.url)

    page = browser.new_page()
    page.on("request", note)
    page.goto((SITE / "architecture.html").as_uri())
    page.keyboard.press("/")
    page.get_by_placeholder("Search").type("once lookup", delay=20)
    page.locator("dialog a", has_text="Call once").first.click()
    page.wait_for_url("**/how-to/call-once.html*")
    page.close()
    assert asked == []
