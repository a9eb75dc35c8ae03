"""The intake's HTTP server: gunicorn's asgi worker, in which no connection costs another one its turn.

Gunicorn's own has no limit of time for a request, counts connections and does not bound them, waits for idle ones when
it is told to stop, gives a client that has closed its half no answer, and quotes what it could not read.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from gunicorn.asgi.lifespan import LifespanManager
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers.gasgi import ASGIWorker

# Seconds from the first byte of a request to its last: 256 KiB at 17 KiB a second. What takes longer is let go.
REQUEST_SECONDS = 15.0
# Seconds for a client to take an answer, and to close its half of a connection that we have closed.
ANSWER_SECONDS = 15.0
LINGER_SECONDS = 2.0
# Seconds for requests that are on their way when the process is told to stop, on connections that seem idle.
LAST_REQUEST_SECONDS = 1.0

MAX_BODY_BYTES = 256 * 1024


class Protocol(ASGIProtocol):  # type: ignore[misc]
    """A connection. Its deadline runs while a request has started and is not whole."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.address = ""
        self._deadline: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._half_closed = False

    @property
    def is_idle(self) -> bool:
        """It waits for a request, of which nothing has come yet."""
        return bool(self._awaiting_request) and self._deadline is None and not self._closed

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.address = address_of(transport.get_extra_info("peername"))
        refused = self.worker.refuses(self.address)
        if refused:
            self._conn_lost_handled = self._closed = True  # it was never counted
            transport.write(problem(*refused))
            transport.close()
            return
        self.worker.admit(self)
        super().connection_made(transport)
        self._arm_keepalive_timer()  # for the first request as for the next ones

    def data_received(self, data: bytes) -> None:
        if not self._closed:  # else it is what a client sends that has been answered already
            super().data_received(data)

    def _feed_callback_parser(self, data: bytes) -> bool:
        goes_on: bool = super()._feed_callback_parser(data)
        if goes_on:
            if self._callback_parser.is_complete:
                self._stop_deadline()
            elif self._half_closed:
                self._give_up_request()
            elif self._deadline is None:
                self._deadline = self.worker.loop.call_later(REQUEST_SECONDS, self._give_up_request)
        return goes_on

    def _on_headers_complete(self) -> bool:
        skips: bool = super()._on_headers_complete()
        request = self._current_request
        # What follows a body that is refused unread, or could be read in two ways, is not taken for a request.
        if request.chunked or request.content_length > MAX_BODY_BYTES:
            request.must_close = True
        return skips

    def eof_received(self) -> bool:
        """The client sends no more. True: it still gets its answers."""
        self._half_closed = True
        if self._closed or (self._deadline is None and self._body_receiver is None):
            return False  # no request has started
        if not self._callback_parser.is_complete:
            self._give_up_request()
        return not self._closed

    def _give_up_request(self) -> None:
        """The rest of the request does not come. The application refuses it, if it has started with it."""
        self._stop_deadline()
        receiver = self._body_receiver
        if receiver is None:
            self._send_error_response(HTTPStatus.BAD_REQUEST if self._half_closed else HTTPStatus.REQUEST_TIMEOUT, "")
            self._close_transport()
            self._request_ready.set()  # for the task that waits for it
        else:
            self._current_request.must_close = True
            receiver._body_wait_expired = True
            receiver._wake_waiter()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _arm_keepalive_timer(self) -> None:
        super()._arm_keepalive_timer()
        if self._half_closed:  # all that it has sent is answered
            self.close_idle()

    def close_idle(self) -> None:
        self._keepalive_timeout()

    def _will_close(self, request: Any, response_requires_close: bool) -> bool:
        receiver = self._body_receiver
        unread = receiver is not None and not receiver._complete
        return unread or super()._will_close(request, response_requires_close)

    def _is_websocket_upgrade(self, request: Any) -> bool:
        return False

    def _close_transport(self) -> None:
        """Close our half, and the rest when the client has closed its own, or has had time to.

        Closed at once with something unread, the kernel would reset the connection, and the client lose its answer.
        """
        if self._closed or self.transport is None:
            return
        nothing_unread = self._half_closed or self.is_idle
        self._closed = True
        self._stop_deadline()
        if nothing_unread:
            self.transport.close()
            return
        try:
            self.transport.write_eof()
        except (OSError, RuntimeError):
            self.transport.close()
            return
        self._resume_reading()
        self.worker.loop.call_later(LINGER_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.worker.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        if self._stuck is not None:
            self._stuck.cancel()
        if not self._conn_lost_handled:
            self.worker.release(self)
        super().connection_lost(exc)

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """Gunicorn's own answer quotes the bytes that it could not read: they may be the rest of a submission."""
        if status < HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.NOT_IMPLEMENTED:
            self.log.warning("Refused what is not HTTP: %d", status)
            self._safe_write(problem(HTTPStatus(status), "not_http"))
        else:
            self._safe_write(problem(HTTPStatus(status), "internal_error"))


class Worker(ASGIWorker):  # type: ignore[misc]
    """Serves at most `worker_connections`, and of one address at most `CONNECTIONS_PER_ADDRESS` (0: any number)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: dict[Protocol, None] = {}  # the oldest first
        self.of_address: Counter[str] = Counter()
        self.most_of_address = 0

    def refuses(self, address: str) -> tuple[HTTPStatus, str] | None:
        """The status and code that one more connection of this address is refused with, if it is.

        When there is no room it gets that of the connection that has been there longest of those that are idle.
        """
        if address and 0 < self.most_of_address <= self.of_address[address]:
            return HTTPStatus.TOO_MANY_REQUESTS, "too_many_connections"
        if len(self.connections) < self.worker_connections:
            return None
        idle = next((each for each in self.connections if each.is_idle), None)
        if idle is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, "overloaded"
        idle.close_idle()
        return None

    def admit(self, connection: Protocol) -> None:
        self.connections[connection] = None
        self.of_address[connection.address] += 1

    def release(self, connection: Protocol) -> None:
        self.connections.pop(connection, None)
        self.of_address[connection.address] -= 1
        if not self.of_address[connection.address]:
            del self.of_address[connection.address]

    async def _serve(self) -> None:
        from django.conf import settings

        self.most_of_address = settings.CONNECTIONS_PER_ADDRESS
        self.lifespan = LifespanManager(self.asgi, self.log, self.state)
        await self.lifespan.startup()
        for listener in self.sockets:
            self.servers.append(await self.loop.create_server(lambda: Protocol(self), sock=listener.sock))
        while self.alive and self.ppid == os.getppid():
            self.notify()
            await asyncio.sleep(1.0)
        await self._shutdown()

    async def _shutdown(self) -> None:
        """Answer what has been sent, and close. On a connection that is in use the next answer is the last one."""
        self.alive = False
        for server in self.servers:
            server.close()
        if not self._quick_shutdown:
            await asyncio.sleep(LAST_REQUEST_SECONDS)
            for connection in tuple(self.connections):
                if connection.is_idle:
                    connection.close_idle()
        await super()._shutdown()


def address_of(peer: Any) -> str:
    """What a client's connections are counted by: its address, of IPv6 the /64; empty for a socket of this machine."""
    if not isinstance(peer, tuple):
        return ""
    address = ip_address(peer[0].partition("%")[0])
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or ip_network((address, 64), strict=False).network_address
    return str(address)


def problem(status: HTTPStatus, code: str) -> bytes:
    """An answer after which the connection is closed."""
    body = json.dumps({"type": "about:blank", "title": status.phrase, "status": int(status), "code": code}).encode()
    retry = "Retry-After: 5\r\n" if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE) else ""
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\nConnection: close\r\n{retry}"
        f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
