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
        self._listener = _bound(0)  # nobody listens there yet
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._ways: list[socket.socket] = []  # those that are open, both ends of each

    def open(self) -> None:
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def close(self) -> None:
        """Refuse connections again, and cut those that there are. The port stays ours."""
        self._end()
        self._listener = _bound(self.port)

    def __enter__(self) -> Road:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        _shut(self._listener)
        self._listener.close()
        while self._ways:
            _shut(self._ways.pop())

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    service = socket.create_connection(self._target)
                except OSError:  # it is just being started again
                    client.close()
                    continue
                self._ways += [client, service]
                for source, sink in ((client, service), (service, client)):
                    threading.Thread(target=_pass_on, args=[source, sink], daemon=True).start()


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
    source.close()
