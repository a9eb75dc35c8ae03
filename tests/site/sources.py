"""What the site is built of: docs/ and the project's other pages, with links that hold in the site."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping
from os.path import relpath
from pathlib import Path
from posixpath import normpath

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCES = ROOT / "var" / "docs"
# Pages of the project that lie outside docs/.
OTHERS = ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# Code, in which nothing is a link; or a link, with its words and its target.
LINK = re.compile(
    r"(?P<code>^ *```.*?^ *```|`[^`\n]+`)|\[(?P<words>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def copy_sources(generated: Mapping[str, str]) -> list[str]:
    """Copy all pages to SOURCES, and write the generated ones. Return what is wrong with their links."""
    shutil.copytree(DOCS, SOURCES, ignore=shutil.ignore_patterns("main.html"))
    wrong: list[str] = []
    for path in [*DOCS.rglob("*.md"), *(ROOT / each for each in OTHERS)]:
        text, faults = with_links_of_the_site(path.relative_to(ROOT).as_posix(), path.read_text(), generated)
        place(path.relative_to(ROOT).as_posix(), text)
        wrong += faults
    for name, text in generated.items():
        place(f"docs/{name}", text)
    listed = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    there = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.md")}
    # The decisions are listed by a page of their own.
    wrong += [f"mkdocs.yml does not list {each}." for each in sorted(there - listed) if not each.startswith("adr/0")]
    return wrong + [f"mkdocs.yml lists {each}, which is missing." for each in sorted(listed - there)]


def place(name: str, text: str) -> None:
    file = SOURCES / name.removeprefix("docs/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def with_links_of_the_site(page: str, text: str, generated: Collection[str] = ()) -> tuple[str, list[str]]:
    """The text of a page as the site has it, and its links that lead nowhere. `page` is relative to the project.

    A link to code becomes its words, because the site has no code.
    """
    wrong: list[str] = []
    folder = page.rpartition("/")[0]

    def of_the_site(found: re.Match[str]) -> str:
        target, mark, anchor = (found["target"] or "").partition("#")
        if found["code"] or not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        there = normpath(f"{folder}/{target}" if folder else target)
        there = "docs/adr/index.md" if there == "docs/adr" else there
        is_page = there in OTHERS or there.startswith("docs/")
        if there.removeprefix("docs/") not in generated and not (ROOT / there).exists():
            wrong.append(f"{page} links to {target}, which is missing.")
        if not is_page:
            return found["words"]
        to = relpath(there.removeprefix("docs/"), folder.removeprefix("docs").removeprefix("/") or ".")
        return f"[{found['words']}]({to}{mark}{anchor})"

    return LINK.sub(of_the_site, text), wrong
