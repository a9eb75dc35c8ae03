"""What is wrong with a built site: links, anchors and pictures that lead nowhere, and what comes from other hosts."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, the addresses that it links to, and those that a browser loads with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given.get("id", ""), given.get("name", "")}
        if "href" in given:
            (self.loaded if tag == "link" else self.links).add(given["href"])
        if "src" in given:
            self.loaded.add(given["src"])


def faults(site: Path) -> list[str]:
    """The faults of all pages of the site in that folder, a line each."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    return [f"{path.relative_to(site)} {fault}" for path in pages for fault in faults_of(path, pages)]


def faults_of(path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    page = pages[path]
    for address in sorted(page.loaded):
        if urlsplit(address).netloc:
            yield f"loads {address}: the site works without a network."
    for address in sorted(page.links | page.loaded):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or path.name == "404.html":  # the latter's links begin at the server's root
            continue
        there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if not there.is_file():
            yield f"leads to {address}, which is missing."
        elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors:
            yield f"leads to {address}, and there is no such anchor."
