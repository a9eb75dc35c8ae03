"""The pictures of the docs: each is there, shown, and taken by `make pictures`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.pictures.album import ALBUM, IMAGES
from tests.servers import ROOT


def shown() -> set[Path]:
    """The pictures that the README and the docs show."""
    return {
        (page.parent / name).resolve()
        for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        for name in re.findall(r"""(?:\]\(|src=")([^)"\s]+\.(?:png|jpg|svg|webp))""", page.read_text(encoding="utf-8"))
    }


def test_the_docs_show_every_picture_and_no_other() -> None:
    assert {path.resolve() for path in IMAGES.iterdir()} == shown()
    assert {picture.file for picture in ALBUM} == {path.name for path in IMAGES.iterdir()}
