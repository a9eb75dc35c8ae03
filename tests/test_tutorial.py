"""The tutorial, as a reader follows it: each of its files, commands, clicks and results, in its order.

Only the places are the test's own: the wheel of this checkout, the server of PostgreSQL, and the ports.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.console.conftest import playwright
from tests.processes import until
from tests.servers import ROOT
from tests.test_wheel import append, kept_environment, run, server, wheel

__all__ = ["wheel"]

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$|\Z", flags=re.M | re.S)
TITLE = re.compile(r"(?:# |<!-- )([\w/]+\.\w+)(, at the end)?(?: -->)?\n")
SERVER = re.compile(r"runserver|runworker|card_service.py")
# What a sentence tells the reader to do in the browser, or to see there.
ACT = re.compile(
    r"[Oo]pen <(?P<url>[^>]+)>|`(?P<typed>[^`]+)` into \*\*(?P<field>[^*]+)\*\*"
    r"|(?:[Pp]ress|[Cc]hoose|then) \*\*(?P<button>[^*]+)\*\*|[Ss]ee \*(?P<seen>[^*]+)\*"
)
# Seconds. A worker finds what is new within one, and a service that was down within some thirty.
PATIENCE = 90.0
DATABASES = ("bakery", "test_bakery")


class Reader:
    def __init__(self, folder: Path, page: Any) -> None:
        self.folder, self.page = folder, page
        self.servers: list[subprocess.Popen[bytes]] = []
        self.environment = {**kept_environment(), **server()}

    def do(self, language: str, text: str) -> None:
        """Type the commands of a block, and see what they print; or write its file, or change it."""
        if language == "console":
            self.type_in(text)
            return
        title = TITLE.match(text)
        assert title, f"Which file is this? {text}"
        path, text = self.folder / "bakery" / title[1], text[title.end() :]
        if language == "diff":
            for hunk in text.split("@@\n"):
                old, new = ("".join(line[1:] for line in hunk.splitlines(True) if line[0] != other) for other in "+-")
                assert path.read_text().count(old) == 1, f"It does not fit:\n{hunk}"
                path.write_text(path.read_text().replace(old, new))
            time.sleep(3)  # a reader is slower than the server, which notices the change within a second
        elif title[2]:
            append(path, text)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def type_in(self, text: str) -> None:
        typed = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
        started = typed.pop() if SERVER.search(typed[-1]) else ""
        there = "cd bakery; source .venv/bin/activate" if (self.folder / "bakery").exists() else ""
        told = run("bash", "-ec", "\n".join([there, *typed]), cwd=self.folder, **self.environment)
        for line in text.splitlines():
            assert line.startswith("$ ") or line in told, told
        if started:
            how: Any = {"cwd": self.folder, "env": self.environment, "start_new_session": True}
            with (self.folder / f"{len(self.servers)}.log").open("wb") as log:
                command = ["bash", "-ec", f"{there}\nexec {started}"]
                self.servers.append(subprocess.Popen(command, **how, stdout=log, stderr=log))

    def read(self, text: str) -> None:
        """Act in the browser."""
        for act in ACT.finditer(" ".join(text.split())):
            if act["url"]:
                until(partial(self.opens, act["url"]), seconds=PATIENCE, what=self.told)
            elif act["field"]:
                self.page.get_by_label(act["field"]).first.fill(act["typed"])
            elif act["button"]:
                button, link = (
                    self.page.get_by_role(role, name=act["button"], exact=True) for role in ("button", "link")
                )
                fold = self.page.locator("summary", has_text=act["button"])
                button.or_(link).or_(fold).first.click()
            else:
                until(partial(self.sees, act["seen"]), seconds=PATIENCE, what=self.told)

    def opens(self, url: str) -> bool:
        try:
            return bool(self.page.goto(url))
        except playwright.Error:  # the server has just been started
            return False

    def sees(self, text: str) -> bool:
        if self.page.get_by_text(text).locator("visible=true").count():
            return True
        self.page.wait_for_timeout(500)
        self.opens(self.page.url)
        return False

    def told(self) -> str:
        logs = "\n".join(path.read_text()[-4000:] for path in sorted(self.folder.glob("*.log")))
        return f"{self.page.inner_text('body')}\n{logs}"

    def end(self) -> None:
        for each in self.servers:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


@pytest.fixture
def reader(browser: Any, tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path, browser.new_page())
    drop = ["bash", "-c", "; ".join(f"dropdb --if-exists --force {name}" for name in DATABASES)]
    run(*drop, cwd=tmp_path, **reader.environment)
    yield reader
    reader.end()
    reader.page.close()
    run(*drop, cwd=tmp_path, **reader.environment)


def test_it_works_as_it_says(reader: Reader, wheel: Path) -> None:
    text = (ROOT / "docs/tutorial.md").read_text()
    site = _free_port()
    for ours, theirs in (
        ("127.0.0.1:8000", f"127.0.0.1:{site}"),
        ("py runserver\n", f"py runserver {site}\n"),
        ("8200", _free_port()),
        ("python3 -m venv", f"{sys.executable} -m venv"),
        ("pip install django-onramp", f"pip install {wheel}"),
    ):
        assert ours in text
        text = text.replace(ours, theirs)
    at = 0
    for block in BLOCK.finditer(text):
        reader.read(text[at : block.start()])
        if block[1]:
            reader.do(block[1], block[2])
        at = block.end()


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])
