"""Three whole installations behind one nginx, as in docs/scaling.md: each client has its cell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from config.embedded.server import DATABASE, PORT, USER, Server
from tests.acceptance.test_intake import get, post
from tests.acceptance.test_nginx import NGINX, Nginx
from tests.config.embedded.servers import a_folder_that_all_can_enter, ask
from tests.processes import until
from tests.servers import ROOT, Gunicorn

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


class Cell:
    """An installation: a PostgreSQL of its own, an intake, and the key of a client."""

    intake: Gunicorn

    def __init__(self, home: Path) -> None:
        self.server = Server(home)
        self.server.start()
        socket = quote(str(self.server.socket_folder()), safe="")
        self.url = f"postgres://{USER}@{socket}:{PORT}/{DATABASE}"
        self._manage("migrate")
        self.key = self._manage("createapikey", "Website").split()[-1]

    def rows(self) -> object:
        return ask(self.server, "SELECT count(*) FROM workflows_workflow")

    def _manage(self, *arguments: str) -> str:
        environment = {**os.environ, "DEBUG": "1", "DATABASE_URL": self.url}
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


def _as_documented(cells: list[Cell]) -> str:
    """The upstreams.conf of docs/scaling.md, with these intakes and the first characters of these keys."""
    found = re.search(r"```nginx\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text(), re.DOTALL)
    assert found
    text = found[1]
    for documented, cell in zip(("10.0.1.1:8000", "10.0.2.1:8000", "10.0.3.1:8000"), cells, strict=True):
        assert documented in text
        text = text.replace(documented, f"127.0.0.1:{cell.intake.port}")
    for documented, cell in zip(("onramp_Hq3vT0aX", "onramp_m-81ZcKe"), cells[1:], strict=True):
        assert documented in text
        text = text.replace(documented, cell.key[: len(documented)])
    return text


def test_each_client_has_its_cell_and_one_that_is_down_takes_no_other_along(tmp_path: Path) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(a_folder_that_all_can_enter())
        with ThreadPoolExecutor() as threads:
            cells = list(threads.map(Cell, [folder / name / "postgres" for name in "abc"]))
        for cell in cells:
            stack.callback(cell.server.remove)
            cell.intake = stack.enter_context(Gunicorn("config.intake", folder / f"{cell.key}.log", cell.url))
        nginx = stack.enter_context(Nginx(tmp_path, _as_documented(cells)))
        sent = {cell.key: [post(nginx, cell.key) for _ in range(10)] for cell in cells}
        assert {answer.status for answers in sent.values() for answer in answers} == {202}
        assert [cell.rows() for cell in cells] == [10, 10, 10]
        for cell in cells:  # what was sent is found where it was stored
            assert get(nginx, sent[cell.key][0].headers["Location"], cell.key).status == 200

        one, down, three = cells
        down.server.stop("immediate")
        assert [post(nginx, cell.key).status for cell in (one, three) for _ in range(10)] == [202] * 20
        refused = post(nginx, down.key)
        refused.assert_problem(503, "database_unavailable")
        assert refused.headers["Retry-After"]
        down.server.start()
        until(lambda: post(nginx, down.key).status == 202)
        assert [one.rows(), three.rows()] == [20, 20]
