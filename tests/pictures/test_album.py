"""The pictures of the docs: each is there, each is shown, and none is large."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pictures.album import ALBUM, IMAGES, LARGEST
from tests.servers import ROOT


def shown() -> set[Path]:
    """The pictures that the README and the docs show."""
    return {
        (page.parent / name).resolve()
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"""(?:\]\(|src=")([^)"\s]+\.(?:png|jpg|svg|webp))""", page.read_text(encoding="utf-8"))
    }


def test_every_picture_that_the_docs_show_is_there_and_none_is_there_that_they_do_not_show() -> None:
    assert {path.resolve() for path in IMAGES.iterdir()} == shown()


def test_each_of_them_is_taken_by_make_pictures() -> None:
    assert {picture.file for picture in ALBUM} == {path.name for path in IMAGES.iterdir()}
    assert len({picture.name for picture in ALBUM}) == len(ALBUM)


def test_none_of_them_is_large() -> None:
    assert {path.name: path.stat().st_size for path in IMAGES.iterdir() if path.stat().st_size > LARGEST} == {}


def test_the_readme_shows_a_desktop_and_a_phone_in_light_and_in_dark() -> None:
    named = set(re.findall(r"docs/images/([\w-]+)\.png", (ROOT / "README.md").read_text(encoding="utf-8")))
    screens = {(picture.phone, picture.dark) for picture in ALBUM if picture.name in named}
    assert len(named) == len(screens) == 4
