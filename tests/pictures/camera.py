"""Drives Debian's Chromium over a console, and takes pictures that change only when what they show has changed."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.pictures.album import Picture

# Small enough for a README, and large enough to read; a phone's pixels are twice as fine.
DESKTOP, PHONE = 1180, 390

SCROLL_TO = "it => window.scrollTo(0, window.scrollY + it.getBoundingClientRect().top - 24)"

# What is another one each time a picture is taken: times, lengths of time, processes, what the services make up.
ALWAYS_THE_SAME = r"""(host) => {
    const same = [
        [/\d{4}-\d{2}-\d{2}/g, "2030-01-15"],
        [/\b\d{1,2}:\d{2}\b(:\d{2}\b)?/g, (_, seconds) => (seconds ? "09:41:00" : "09:41")],
        [/\b\d+(\.\d+)? (ms|s|min|seconds|minutes?)(?![a-z])/g, "2 $2"],
        [/^\s*now\s*$/g, "2 min"],
        [/release \d\.\d\.\d/g, "release 2.4.0"],
        [/\d+ of \d+ votes/g, "5 of 5 votes"],
        [/^workflow \d+$/g, "workflow 36"],
        [/^\d+\.\d$/g, "12.0"],
        [/\b(ch|re|enr|card|msg)_[0-9a-f]{8,}/g, "$1_4f9a21c07be3"],
        [/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "4f9a21c0-7be3-4d15-9c62-1f0a8e5b7d34"],
        [new RegExp(host.replace(/[^a-z0-9]/gi, "\\$&") + "(/[0-9a-f]{4})?(:\\d+)?", "gi"), "worker-host:101"],
    ];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        let text = texts.currentNode.data;
        for (const [what, by] of same) text = text.replace(what, by);
        texts.currentNode.data = text;
    }
    const byRelease = (a, b) => a.querySelector(".field-release").textContent.localeCompare(
        b.querySelector(".field-release").textContent);
    const workers = [...document.querySelectorAll("tr:has(.field-release)")].sort(byRelease);
    workers.forEach((row) => row.parentNode.append(row));
}"""


def take(pictures: Iterable[Picture], into: Path, console: str, printed: str) -> Iterator[Path]:
    """Take each of `pictures` of the console at that address, and yield its file.

    What the demo has `printed` leads to pages, by a line and an address each, and has its logins with their passwords.
    """
    pages = dict(re.findall(r"^  (.+)\n    (http://\S+)$", printed, flags=re.M))
    passwords = dict(re.findall(r"│ (demo\S*) +│ (\S+) +│", printed))
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("No Chromium on this machine: apt-get install chromium fonts-dejavu")
    with sync_playwright() as started:
        # Without a sandbox of its own, as root needs it. With the others it paints the same page alike each time.
        painting = ["--font-render-hinting=none", "--disable-lcd-text", "--disable-partial-raster"]
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", *painting])
        signed_in = cache(lambda login: _sign_in(browser, console, login, passwords[login]))
        # Each screen has a browser's cache of its own.
        screen = cache(lambda login, phone: _screen(browser, console, signed_in(login), phone=phone))
        for picture in pictures:
            yield _take(picture, screen(picture.login, picture.phone), into, pages)
        browser.close()


def _sign_in(browser: Browser, console: str, login: str, password: str) -> Any:
    page = browser.new_page(base_url=console)
    page.goto("/admin/")
    page.fill("[name=username]", login)
    page.fill("[name=password]", password)
    with page.expect_navigation():
        page.press("[name=password]", "Enter")
    return page.context.storage_state()


def _screen(browser: Browser, console: str, session: Any, *, phone: bool) -> Page:
    context = browser.new_context(
        base_url=console,
        storage_state=session,
        viewport={"width": PHONE if phone else DESKTOP, "height": 760},
        device_scale_factor=1.5 if phone else 1,
        is_mobile=phone,
        reduced_motion="reduce",
    )
    context.set_default_timeout(10_000)
    return context.new_page()


def _take(picture: Picture, page: Page, into: Path, pages: Mapping[str, str]) -> Path:
    page.emulate_media(color_scheme="dark" if picture.dark else "light")
    page.set_viewport_size({"width": PHONE if picture.phone else DESKTOP, "height": picture.height})
    led_to = [page for about, page in pages.items() if about.startswith(picture.page)]
    page.goto(picture.page if picture.page.startswith("/") else led_to[0])
    if picture.click:
        page.locator("#content").locator(picture.click).first.click()
        page.wait_for_load_state()
    page.evaluate(ALWAYS_THE_SAME, socket.gethostname())
    if picture.above:
        page.get_by_role("heading", name=picture.above).first.evaluate(SCROLL_TO)
    file = into / picture.file
    taken = page.screenshot(animations="disabled", caret="hide")
    if not file.exists() or file.read_bytes() != taken:
        file.write_bytes(taken)
    return file
