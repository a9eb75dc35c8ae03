"""A receiver of webhooks: a real server, which answers as it is told and keeps what it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """`answers`: the status for an event, by what was received, or None to be silent until the test ends."""

    answers: Callable[[dict[str, Any]], int | None] = lambda event: 204
    headers: dict[str, str] = field(default_factory=dict)
    interim: tuple[int, ...] = ()
    got: list[dict[str, Any]] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def ids(self) -> list[str]:
        return [event["id"] for event in self.got]


@contextmanager
def receiver(**told: Any) -> Iterator[Receiver]:
    this, lock = Receiver(**told), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            event = json.loads(body)
            with lock:
                this.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                this.got.append(event)
            status = this.answers(event)
            if status is None:
                this.ended.wait(60)
                return
            for interim in this.interim:
                self.send_response_only(interim)
                self.send_header("Retry-After", "1000")
                self.end_headers()
            self.send_response(status)
            for name, value in this.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None: ...  # the relay has gone

    server = Server(("127.0.0.1", 0), Handler)
    this.url = f"http://127.0.0.1:{server.server_address[1]}/hooks?for=onramp"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield this
    finally:
        this.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
