"""The built site, read from its files in a browser."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import Request, sync_playwright

from tests.site.__main__ import SITE, main

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="No Chromium on this machine: apt-get install chromium")
def test_its_search_finds_a_page_and_nothing_is_asked_of_a_network() -> None:
    assert main() == 0
    asked: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            asked.append(request.url)

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page()
        page.on("request", note)
        page.goto((SITE / "architecture.html").as_uri())
        page.keyboard.press("/")
        page.get_by_placeholder("Search").type("once lookup", delay=20)
        page.locator("dialog a", has_text="Call once").first.click()
        page.wait_for_url("**/how-to/call-once.html*")
        chromium.close()
    assert asked == []
