"""The site of the docs: what is generated is complete, and what is broken is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings

from tests.site import tables
from tests.site.built import faults
from tests.site.checks import checks
from tests.site.sources import with_links_of_the_site

ROOT = Path(settings.BASE_DIR)


def test_each_check_is_on_the_page_with_what_it_says() -> None:
    named = set()
    for path in (path for app in ("workflows", "staff", "onboarding", "config") for path in (ROOT / app).rglob("*.py")):
        app = path.relative_to(ROOT).parts[0]
        named |= set(re.findall(r"\b(?:workflows|staff|onboarding|config)\.[EW]\d{3}\b", path.read_text()))
        named |= {f"{app}.{number}" for number in re.findall(r'"([EW]\d{3})"', path.read_text())}
    found = checks()
    assert found.keys() == named
    assert [number for number, (message, _) in found.items() if not message] == []
    assert found["workflows.W005"][0].startswith("The step … is best effort and stands before others")


def test_each_room_stands_on_the_page_about_what_you_may_ignore() -> None:
    page = (ROOT / "docs/features.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "workflows/features").glob("*/__init__.py")}
    base = {"sealing", "search", "ingress", "waits", "signals", "effects", "console", "api"}
    assert {name for name in rooms if f"| `{name}`:" not in page} == set()
    assert {name for name in base if f"`workflows.{name}`" not in page} == set()


def test_a_table_without_a_room_fails_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ">effect</text>" in tables.picture()
    monkeypatch.setitem(tables.ROOMS, "Outbox", "")
    with pytest.raises(ValueError, match="outboxevent"):
        tables.picture()


def test_links_between_pages_are_mended_and_missing_ones_told() -> None:
    text = "[a](../api.md#errors) [b](../../AGENTS.md) [code](../../manage.py) `[c](none.md)` [d](none.md)"
    assert with_links_of_the_site("docs/internals/claim.md", text) == (
        "[a](../api.md#errors) [b](../AGENTS.md) code `[c](none.md)` [d](none.md)",
        ["docs/internals/claim.md links to none.md, which is missing."],
    )


def test_a_built_page_has_no_link_that_leads_nowhere_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<link href="https://fonts.example/x.css"><a href="b.html#there">x</a><a href="b.html#gone">x</a>'
        '<img src="c.png"><a href="https://example.com">elsewhere</a>'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1>')
    assert faults(tmp_path) == [
        "a.html loads https://fonts.example/x.css: the site works without a network.",
        "a.html leads to b.html#gone, and there is no such anchor.",
        "a.html leads to c.png, which is missing.",
    ]
