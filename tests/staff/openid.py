"""npm's `oidc-provider` in a process of its own, and a browser that signs in there. Tests with it are marked `node`."""

from __future__ import annotations

import html
import json
import queue
import re
import signal
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from django.test import Client

from onboarding.demo.openid import install
from onboarding.demo.processes import DemoError

START, CALLBACK = "/admin/single-sign-on/", "/admin/single-sign-on/callback/"
SITE = "http://testserver"

ADA = {"groups": ["staff", "onramp-support"]}


def installed() -> Path:
    """Where Node 22 and the provider are installed, once for all. Skips the test where that cannot be had."""
    try:
        return install()
    except DemoError as why:
        pytest.skip(str(why))


def _listener(heard: queue.Queue[dict[str, str]]) -> HTTPServer:
    """Takes the forms that the provider sends to its clients by itself."""

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.put(dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class OpenIdProvider:
    def __init__(self, folder: Path, **state: Any) -> None:
        self.place, self.file = installed(), folder / "state.json"
        self.logouts = queue.Queue[dict[str, str]]()
        self.listener = _listener(self.logouts)
        logout = f"http://127.0.0.1:{self.listener.server_port}/"
        self.state: dict[str, Any] = {"users": {}, "clock": 0, "logout": logout, **state}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.tell()
        command = ["node_modules/.bin/node", "provider.mjs", str(self.file), str(self.port)]
        self.process = subprocess.Popen(command, cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout
        assert self.process.stdout.readline().decode().strip() == self.issuer

    def tell(self, **state: Any) -> None:
        """From now on these are its users, its clock."""
        self.state |= state
        self.file.write_text(json.dumps(self.state))

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        self.stop()
        self.listener.shutdown()
        self.listener.server_close()

    def hang(self) -> None:
        """It takes connections, and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)


def leads_to(page: Any) -> str:
    """The address of the provider that a page of the console leads to by itself."""
    return html.unescape(re.findall(r'http-equiv="refresh" content="0; url=([^"]+)"', page.content.decode())[0])


class Browser:
    """One with cookies of both sites: of the console's (Django's test client), and of the provider's (real HTTP)."""

    def __init__(self, site: str = SITE) -> None:
        self.site, self.console = site, Client(raise_request_exception=True)
        self.web = httpx.Client(timeout=60, limits=httpx.Limits(max_keepalive_connections=0))

    def start(self, back: str = "/admin/jsi18n/") -> Any:
        return self.console.get(START, {"next": back})

    def at_provider(self, url: str, name: str = "ada", *, agrees: bool = True) -> str:
        """Follow the provider's pages, signing in where it asks, to the address in the console that it leads to."""
        answer = self.web.get(url)
        for _ in range(20):
            to = answer.headers.get("Location", "")
            if to.startswith(self.site):
                return str(to)
            if to:
                answer = self.web.get(answer.url.join(to))
                continue
            assert answer.status_code == 200, answer.text
            form = dict(re.findall(r'name="(\w+)" value="(\w+)"', answer.text))
            action = re.findall(r'action="([^"]+)"', answer.text)[0]
            leave = re.findall(r'href="([^"]+/abort)"', answer.text)
            answer = self.web.post(action, data={**form, "login": name}) if agrees else self.web.get(leave[0])
        raise LookupError("The provider goes on asking.")

    def sign_in(self, name: str = "ada", back: str = "/admin/jsi18n/", **how: Any) -> Any:
        """The console's answer to what the provider sends the browser back with."""
        return self.console.get(self.at_provider(self.start(back)["Location"], name, **how).removeprefix(SITE))

    def leave_provider(self, issuer: str) -> None:
        """Sign out there, on its own page."""
        page = self.web.get(f"{issuer}/session/end").text
        form = dict(re.findall(r'name="(\w+)" value="(\w+)"', page))
        self.web.post(f"{issuer}/session/end/confirm", data={**form, "logout": "yes"})

    def said(self, answer: Any) -> str:
        """What the page says that an answer leads to, the sign-in."""
        assert answer.status_code == 302
        assert answer["Location"].startswith("/admin/login/"), answer["Location"]
        return str(self.console.get(answer["Location"]).content.decode())

    @property
    def is_signed_in(self) -> bool:
        return bool(self.console.get("/admin/session/").status_code == 200)
