"""The HTTP servers: gunicorn's asgi worker for the intake, and its worker with threads for the console.

Gunicorn's asgi worker has no time limit for a request. It counts connections, but limits neither them nor their memory.
When it has to stop it waits for idle ones, and it does not answer a client that has closed its half. The worker with
threads accepts nobody while it waits for a client to close. Both quote what they could not read. No other module knows
gunicorn's internals; tests/config/test_foreign_parts.py names them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from functools import partial
from http import HTTPStatus
from selectors import EVENT_READ
from socket import SHUT_WR, socket
from typing import Any

from django.conf import settings
from gunicorn import util
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.glogging import Logger
from gunicorn.http import errors
from gunicorn.workers import gasgi
from gunicorn.workers.gthread import ThreadWorker

from config.logs import LINE, Formatter, JsonFormatter

# Seconds from a request's first byte to its last: 256 KiB at 17 KiB a second.
REQUEST_SECONDS = 15.0
# Seconds for a client to take an answer.
ANSWER_SECONDS = 15.0
# After the last answer we close our half, and discard what the client still sends: for so long, so much, and until it
# is silent. With unread data the kernel would reset the connection, and the client could lose its answer.
LINGER_SECONDS = REQUEST_SECONDS
LINGER_SILENCE_SECONDS = 2.0
LINGER_BYTES = 16 * 1024 * 1024
# Seconds that a stopping process gives to requests under way on connections that seem idle.
LAST_REQUEST_SECONDS = 1.25
# Smaller requests are not counted, so that a health check is always answered: 1,000 of them are 8 MB.
SMALL = 8 * 1024


class Connection(ASGIProtocol):  # type: ignore[misc]
    """A client of the intake. Its deadline runs between the start and the end of a request."""

    _closed: bool

    def __init__(self, worker: IntakeWorker) -> None:
        super().__init__(worker)
        self._deadline: asyncio.TimerHandle | None = None
        self._half_closed = False
        self._size = self._whole_size = self._counted = 0
        self._is_cut_off = False
        self._discarded = 0
        self._abort: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no part of its next request has come yet."""
        return self._body_receiver is None and self._deadline is None and not self._closed

    @property
    def _is_whole(self) -> bool:
        return self._body_receiver is not None and self._body_receiver._complete

    def connection_made(self, transport: asyncio.Transport) -> None:
        has_room = self.worker.has_room()
        super().connection_made(transport)
        if has_room:
            self.worker.connections[self] = None
            self._arm_keepalive_timer()  # also for the first request
        else:
            self.refuse()

    def refuse(self) -> None:
        """Answer that there is no room for the connection or its request, and close."""
        self._send_error_response(HTTPStatus.SERVICE_UNAVAILABLE, "")
        self._keepalive_timeout()
        self._forget_request()  # at once: hundreds may be refused before the loop runs their tasks

    async def _handle_connection(self) -> None:
        try:
            await super()._handle_connection()
        finally:
            self._forget_request()

    def _forget_request(self) -> None:
        """Free the request's memory: the connection may linger."""
        self._body_receiver = self._callback_parser = self._current_request = None
        self._count(0)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            self._discard(data)
        else:
            super().data_received(data)

    def _feed_callback_parser(self, data: bytes) -> bool:
        """Read what has come now, or while the previous request was answered."""
        if self._closed or self._is_cut_off:  # the client is gone, or has had its last answer
            return False
        has_head = self._body_receiver is not None
        if self._deadline is None:
            self._deadline = self.worker.loop.call_later(REQUEST_SECONDS, self._give_up_request)
            if not has_head:
                self._size = self._whole_size = 0
        self._size += len(data)
        if has_head and not self._count(max(self._size, self._whole_size)):
            self._cut_off()
            return False
        goes_on: bool = super()._feed_callback_parser(data)
        if goes_on and not has_head and not self._count(self._size_when_whole()):
            self.refuse()
            return False
        if self._is_whole:
            self._stop_deadline()
        elif goes_on and self._half_closed:
            self._give_up_request()
        return goes_on

    def _size_when_whole(self) -> int:
        """The bytes of its request, including the missing part of the body, and of what follows it."""
        if (receiver := self._body_receiver) is not None:
            held = min(receiver.request.content_length, self._max_buffer_size)
            self._whole_size = self._size + max(0, held - receiver.buffered)
        return self._whole_size or self._size

    def _count(self, size: int) -> bool:
        """Count the memory that it uses or will use. False if there is no room: the count then stays as it was."""
        counted = size if size > SMALL else 0
        held = self.worker.held + counted - self._counted
        if counted > self._counted and held > settings.INTAKE_HELD_MEGABYTES * 1_000_000:
            return False
        self.worker.held, self._counted = held, counted
        return True

    def _cut_off(self) -> None:
        """Read no more: there is no room for what follows a request. That request's answer is the last one."""
        self._is_cut_off = True
        self._keepalive = 0
        if not self._is_whole:
            self._give_up_request()

    def _resume_reading(self) -> None:
        """Do not resume after each answer, as gunicorn does, while many requests still wait for theirs."""
        if not self._is_buffer_full():
            super()._resume_reading()

    def eof_received(self) -> bool:
        """The client sends no more. Returns True, so that it still gets its answers."""
        self._half_closed = True
        if self._closed or self.is_idle:
            return False
        if not self._is_whole:
            self._give_up_request()
        return not self._closed

    def _give_up_request(self) -> None:
        """The rest of the request will not come. If the application has started, it refuses the request."""
        if self._body_receiver is not None:
            self._stop_deadline()
            self._body_receiver.signal_disconnect()
        else:
            self._send_error_response(HTTPStatus.BAD_REQUEST if self._half_closed else HTTPStatus.REQUEST_TIMEOUT, "")
            self._keepalive_timeout()

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _arm_keepalive_timer(self) -> None:
        super()._arm_keepalive_timer()
        if self.is_idle:
            self._count(0)
            if self in self.worker.connections:  # it is now the last of the idle ones
                self.worker.connections[self] = self.worker.connections.pop(self)
        if self._half_closed:  # all its requests are answered
            self._keepalive_timeout()

    def _will_close(self, request: Any, response_requires_close: bool) -> bool:
        """Close if a body was not read completely: the rest would be taken for the next request."""
        return not self._is_whole or self._leaves_much or super()._will_close(request, response_requires_close)

    @property
    def _leaves_much(self) -> bool:
        """Whether much of its request would stay: gunicorn retains headers and an unread body until the next one."""
        receiver = self._body_receiver
        return receiver is not None and self._whole_size - receiver.request.content_length + receiver.buffered > SMALL

    def _close_transport(self) -> None:
        """Close our half; close the rest when the client has closed its own, or has had time to."""
        if self._closed or self.transport is None:
            return
        self._closed = True
        self._stop_deadline()
        if self._half_closed:  # nothing is unread
            self.transport.close()
            return
        try:
            self.transport.write_eof()
            self.transport.resume_reading()
        except (OSError, RuntimeError):
            self.transport.close()
            return
        self._closes_at = self.worker.loop.time() + LINGER_SECONDS
        self._discard(b"")
        self.worker.lingers(self)

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        left = self._closes_at - self.worker.loop.time() if self._discarded <= LINGER_BYTES else 0
        if self._abort is not None:
            self._abort.cancel()
        self._abort = self.worker.loop.call_later(min(left, LINGER_SILENCE_SECONDS), self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.worker.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_deadline()
        if self._abort is not None:
            self._abort.cancel()
        self.worker.connections.pop(self, None)
        self.worker.lingering.pop(self, None)
        super().connection_lost(exc)

    def _send_error_response(self, status: int, message: str, extra_headers: Any = ()) -> None:
        """Answer without the bytes that could not be read, which gunicorn quotes: they may be part of a submission."""
        if status < HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.NOT_IMPLEMENTED:
            self.log.warning("Refused what is not HTTP: %d", status)
            code = "not_http"
        else:
            code = "overloaded" if status == HTTPStatus.SERVICE_UNAVAILABLE else "internal_error"
        if not self._closed:
            from workflows.intake.metrics import count_answer  # gunicorn loads this module before its folder exists

            count_answer(status)
            self.transport.write(problem(HTTPStatus(status), code))


class Log(Logger):  # type: ignore[misc]
    """Writes gunicorn's log like all others. With `logconfig_dict` gunicorn would also write a line for each access."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(JsonFormatter() if os.environ.get("LOG_FORMAT") == "json" else Formatter(LINE))


# The worker makes one for each connection. Gunicorn has no setting for this class.
gasgi.ASGIProtocol = Connection


class IntakeWorker(gasgi.ASGIWorker):  # type: ignore[misc]
    """Serves at most `worker_connections`, whose requests use at most INTAKE_HELD_MEGABYTES."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.connections: dict[Connection, None] = {}  # the longest idle one is first
        self.lingering: dict[Connection, None] = {}  # those that have had their last answer, oldest first
        self.held = 0

    def init_signals(self) -> None:
        """Let a stop signal end the process before it serves: uvloop loses a signal that comes before the loop runs."""
        super().init_signals()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)

    def has_room(self) -> bool:
        """Whether one more connection can be served. If all are taken, it replaces the longest idle one."""
        if len(self.connections) < self.worker_connections:
            return True
        idle = next((each for each in self.connections if each.is_idle), None)
        if idle is not None:
            idle.refuse()  # its next request may be on its way
        return idle is not None

    def lingers(self, connection: Connection) -> None:
        """Let a connection linger. It takes no other's place, but only so many may linger."""
        self.connections.pop(connection, None)
        self.lingering[connection] = None
        if len(self.lingering) > self.worker_connections:
            oldest = next(iter(self.lingering))
            del self.lingering[oldest]
            oldest.transport.abort()

    async def _serve(self) -> None:
        """Serve with the backlog of the setting, which gunicorn forgets: after a hundred, connections are lost."""
        super().init_signals()
        self.loop.create_server = partial(self.loop.create_server, backlog=self.cfg.backlog)
        await super()._serve()

    def handle_exit_signal(self) -> None:
        """Stop at once: gunicorn's handler goes on listening until the next heartbeat."""
        super().handle_exit_signal()
        self._stop()

    async def _shutdown(self) -> None:
        self._stop()  # no signal comes if the arbiter is gone
        await super()._shutdown()

    def _stop(self) -> None:
        """Answer the requests that were sent, and close. On a connection in use the next answer is the last one."""
        self.alive = False
        for server in self.servers:
            server.close()
        self.loop.call_later(LAST_REQUEST_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        for connection in tuple(self.connections):
            if connection.is_idle and connection.transport is not None:
                connection.transport.close()  # no answer is under way that a reset could lose


_STATUS: dict[type[Exception], HTTPStatus] = {
    errors.LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    errors.LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    errors.UnsupportedTransferCoding: HTTPStatus.NOT_IMPLEMENTED,
    errors.ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
}


class ConsoleWorker(ThreadWorker):  # type: ignore[misc]
    """Lingers like the intake. Gunicorn's worker would accept nobody meanwhile, and discard at most 64 KiB."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lingering: dict[Any, float] = {}  # the time when each is given up, oldest first

    def finish_request(self, conn: Any, fs: Any) -> None:
        conn.close = partial(self._close, conn)
        super().finish_request(conn, fs)

    def _close(self, conn: Any, graceful: bool = False) -> None:
        """Close our half; close the rest when the client has closed its own, or has had time to."""
        try:
            conn.sock.shutdown(SHUT_WR)
            conn.sock.setblocking(False)
            self.poller.register(conn.sock, EVENT_READ, partial(self._discard, conn))
        except OSError:
            util.close(conn.sock)
            return
        self.nr_conns += 1
        conn.closes_at = time.monotonic() + LINGER_SECONDS
        conn.unread = LINGER_BYTES
        self._lingering[conn] = time.monotonic() + LINGER_SILENCE_SECONDS
        if len(self._lingering) > self.worker_connections // 2:
            self._end(next(iter(self._lingering)))

    def _discard(self, conn: Any, client: socket) -> None:
        if conn not in self._lingering:  # another event has just ended it
            return
        try:
            received = len(client.recv(65536))
        except OSError:
            received = 0
        conn.unread -= received
        self._lingering[conn] = min(conn.closes_at, time.monotonic() + LINGER_SILENCE_SECONDS)
        if received == 0 or conn.unread < 0:
            self._end(conn)

    def murder_pending(self) -> None:
        super().murder_pending()
        now = time.monotonic()
        for conn in [each for each, gives_up_at in self._lingering.items() if gives_up_at < now]:
            self._end(conn)

    def _end(self, conn: Any) -> None:
        del self._lingering[conn]
        self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        util.close(conn.sock)

    def handle_error(self, req: Any, client: socket, addr: Any, exc: Exception) -> None:
        """Answer and log without the bytes that could not be read, which gunicorn quotes."""
        if isinstance(exc, errors.ParseException):
            self.log.warning("Refused what is not HTTP: %s", type(exc).__name__)
            answer = problem(_STATUS.get(type(exc), HTTPStatus.BAD_REQUEST), "not_http")
        else:
            self.log.error("Error handling a request: %s", type(exc).__name__, exc_info=exc)
            answer = problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error")
        try:
            util.write_nonblock(client, answer)
        except OSError:
            self.log.debug("The client is gone.")


def problem(status: HTTPStatus, code: str) -> bytes:
    """An answer after which the connection is closed."""
    body = json.dumps({"type": "about:blank", "title": status.phrase, "status": int(status), "code": code}).encode()
    retry = "Retry-After: 5\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\nConnection: close\r\n{retry}"
        f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
