"""Debian's nginx in front of the intake, with the configuration of deploy/."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.acceptance.test_intake import get, post, raw_post, send_raw
from tests.processes import until
from tests.servers import ROOT, Gunicorn, gunicorn
from workflows.ingress import api_keys
from workflows.models import Workflow

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MOST = 4  # connections of an address

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(NGINX is None, reason="nginx is not installed"),
]


class Nginx:
    """With `upstreams` of the test, a port of its own in place of TLS, and shorter limits."""

    def __init__(self, folder: Path, upstreams: str, connections: int = MOST) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        plain = [
            line
            for line in (ROOT / "deploy" / "nginx" / "onramp.conf").read_text().splitlines()
            if "ssl_certificate" not in line and "[::]" not in line and "listen 80;" not in line
        ]
        site = "\n".join(plain)
        for ours, theirs in {
            "listen 443 ssl;": f"listen 127.0.0.1:{self.port};",
            "return 301 https://$host$request_uri;": f"listen unix:{folder}/redirecting;",
            "client_header_timeout 15s": "client_header_timeout 1s",
            "onramp_clients 256": f"onramp_clients {connections}",
        }.items():
            assert site.count(ours) == 1, ours
            site = site.replace(ours, theirs)
        user = "user root;" if os.getuid() == 0 else ""
        temporary = "".join(f"{each}_temp_path {folder};" for each in ("proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(
            f"{user} daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ {temporary}\n"
            f"client_body_temp_path {folder}/nowhere;\n{upstreams}\n{site}\n}}\n"
        )
        assert NGINX
        self.log = folder / "nginx.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [NGINX, "-e", "stderr", "-p", folder, "-c", folder / "nginx.conf"], stderr=output
            )

    def __enter__(self) -> Nginx:
        until(self.answers)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def connect(self, sent: bytes = b"") -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        sock.sendall(sent)
        return sock

    def answers(self) -> bool:
        with suppress(OSError), self.connect():
            return True
        return False


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Gunicorn]:
    with gunicorn("config.intake", tmp_path) as server:
        yield server


@pytest.fixture
def nginx(tmp_path: Path, intake: Gunicorn) -> Iterator[Nginx]:
    shipped = (ROOT / "deploy" / "nginx" / "upstreams.conf").read_text()
    assert "127.0.0.1:8000" in shipped
    with Nginx(tmp_path, shipped.replace("127.0.0.1:8000", f"127.0.0.1:{intake.port}")) as nginx:
        yield nginx


def test_a_submission_passes_and_what_is_refused_is_a_problem_in_the_form_of_the_api(
    nginx: Nginx, intake: Gunicorn
) -> None:
    key = api_keys.create("shop")
    largest = '{"a": "' + "x" * (256 * 1024 - 9) + '"}'
    assert post(nginx, key).status == post(nginx, key, largest).status == 202
    assert Workflow.objects.count() == 2
    assert get(nginx, "/metrics").status == 502  # the console's, which does not run here; never the intake's
    post(nginx, key, f"{largest} ").assert_problem(413, "too_large")
    post(nginx, "onramp_nothing").assert_problem(401, "api_key_invalid")
    intake.process.terminate()
    intake.process.wait(30)
    away = post(nginx, key)
    away.assert_problem(503, "unavailable")
    assert away.headers["Retry-After"] == "5"


def test_idle_sockets_hold_nobody_up_slow_headers_are_cut_and_an_address_has_so_many_connections(nginx: Nginx) -> None:
    key = api_keys.create("shop")
    with ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(nginx.connect())
        assert post(nginx, key).status == 202
    assert send_raw(nginx, b"POST /v1/subm", half_close=False) == b""
    unfinished = raw_post(key, b"", "Content-Length: 2")
    with ExitStack() as stack:
        held = [stack.enter_context(nginx.connect(unfinished)) for _ in range(MOST)]
        until(lambda: post(nginx, key).status == 429)
        refused = post(nginx, key)
        refused.assert_problem(429, "too_many_connections")
        assert refused.headers["Retry-After"] == "5"
        held[0].close()
        until(lambda: post(nginx, key).status == 202)
