"""The pictures: what each shows, to whom, on which screen."""

from __future__ import annotations

from typing import NamedTuple

from tests.servers import ROOT

IMAGES = ROOT / "docs" / "images"
# A page of the docs has several of them, and is read over slow lines, too.
LARGEST = 150_000  # bytes


class Picture(NamedTuple):
    """One file of docs/images.

    `page` is a path of the console, or how the line starts by which the demo leads to it; `click` is the selector of a
    link there that is followed. `above` is the text of the heading that the picture starts with; empty for the top of
    the page. `height` is that of the window, in pixels of CSS.
    """

    name: str
    login: str
    page: str
    click: str = ""
    above: str = ""
    phone: bool = False
    dark: bool = False
    height: int = 760

    @property
    def file(self) -> str:
        return f"{self.name}.png"


ALBUM = (
    Picture("home", "demo-support-lead", "/admin/", height=640),
    Picture("workflow", "demo-support", "One that was cancelled"),
    Picture("workflow-phone", "demo-support", "A poison payload", phone=True),
    Picture("steps", "demo-support", "A refund that failed", above="Steps in attempt", height=475),
    Picture("retry", "demo-support", "A card that was declined", click="a:text('Retry')", height=710),
    Picture("for-you", "demo-support-lead", "What is for you"),
    Picture("for-an-approver", "demo-approver", "Reviews that wait"),
    Picture("review-phone-dark", "demo-approver", "Reviews that wait", click=".needs a", phone=True, dark=True),
    Picture("unclear-call-dark", "demo-support-lead", "An unclear call", click="a:text('Task')", dark=True, height=900),
    Picture("service-dark", "demo-engineer", "Parked", dark=True, height=600),
    Picture("workers", "demo-engineer", "Two releases", click="a:text('Live')", height=340),
)
