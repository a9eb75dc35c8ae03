"""The road to a service, on a port of its own: closed at first, so that connections are refused, until it is opened."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit


class Road:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))  # nobody listens there yet
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def open(self) -> None:
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Road:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                service = socket.create_connection(self._target)
                for source, sink in ((client, service), (service, client)):
                    threading.Thread(target=_pass_on, args=[source, sink], daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
    source.close()
