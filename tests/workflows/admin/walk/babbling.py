"""A service that says too much: whatever it is asked, it answers with markers in the status line, headers and body."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REASON, HEADER, BODY = "Canaryreason", "canaryheader", "canarybody"


class Babbling(BaseHTTPRequestHandler):
    status = 409
    body = f'{{"error": "{BODY}", "detail": ["{BODY} of somebody"], "patient": {{"name": "{BODY}"}}}}'
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(self.status, REASON)
        self.send_header("X-Detail", HEADER)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body.encode())))
        self.end_headers()
        self.wfile.write(self.body.encode())

    do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 (http.server's names)

    def log_message(self, *_: object) -> None:
        """The test's output is for the test."""


@contextmanager
def babbling_service(status: int = 409, body: str = "") -> Iterator[str]:
    """The root of the service, which answers with this status, and this body if it is not its own."""
    said = {"status": status, **({"body": body} if body else {})}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Told", (Babbling,), said))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
