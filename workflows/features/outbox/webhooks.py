"""WEBHOOKS: events are sent as https://www.standardwebhooks.com says, and each has a time limit as a whole.

No redirect is followed, no proxy asked, and nothing but the status, `Retry-After` and `Date` is read of an answer. The
library that our services are called with has limits for each read only: a receiver that sends a byte a second would
hold it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cache
from http.client import HTTPConnection, HTTPException
from threading import Timer
from time import monotonic, time
from urllib.parse import SplitResult, urlsplit

from workflows import retry_after
from workflows.features.outbox.destinations import Destination
from workflows.features.outbox.sending import CONTENT_TYPE, NO_ANSWER, SENT, UNTRIED, Outcome, Taken
from workflows.ingress.webhooks import sign

# Seconds for all of it. From the specification: 15 to 30, and receivers are to answer first and work later. It is less
# than the lease of a trial (`outages.circuits.TRIAL`).
TOTAL = 10.0
# Seconds for a connection to each address of the host.
CONNECT = 3.0
# Events that are under way at a time.
AT_ONCE = 16

# After these the final answer comes (RFC 9110, 15.2). 101, which nobody has asked for, is final.
INTERIM = range(102, 200)


class Webhook:
    """Sends events to one webhook. It is no longer used once `close` was called."""

    at_once = AT_ONCE

    def __init__(self, destination: Destination, *, total: float = TOTAL) -> None:
        self._destination, self._total = destination, total
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix=destination.service)

    def send(self, events: Sequence[Taken], must_not_begin: Callable[[], bool]) -> Sequence[Outcome]:
        def send_one(event: Taken) -> Outcome:
            if must_not_begin():
                return UNTRIED
            began = monotonic()
            return replace(self._post(event), seconds=monotonic() - began)

        sending = [self._threads.submit(send_one, event) for event in events]
        # A name that is looked up, alone, has no time limit: its thread finds out later that it is too late.
        wait(sending, timeout=self._total + 2 * CONNECT)
        return [each.result() if each.done() else NO_ANSWER for each in sending]

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    def _post(self, event: Taken) -> Outcome:
        body, url = event.as_cloud_event(), urlsplit(self._destination.url)
        try:
            status, seconds = _post(url, body, self._headers(event, body), until=monotonic() + self._total)
        except TimeoutError:
            return NO_ANSWER
        except (OSError, HTTPException, ValueError) as error:
            return Outcome(type(error).__name__)
        if 200 <= status < 300:
            return SENT
        return Outcome(f"HTTP {status}", retry_after=seconds, is_gone=status == 410)

    def _headers(self, event: Taken, body: bytes) -> Mapping[str, str]:
        stamp = str(int(time()))
        content = f"{event.event_id}.{stamp}.".encode() + body
        return {
            "Content-Type": CONTENT_TYPE,
            "User-Agent": "onramp",
            "Connection": "close",
            **event.trace_headers,
            "webhook-id": str(event.event_id),
            "webhook-timestamp": stamp,
            "webhook-signature": " ".join(sign(key, content).decode() for key in self._destination.keys),
        }


def _post(url: SplitResult, body: bytes, headers: Mapping[str, str], *, until: float) -> tuple[int, float]:
    """The status of the answer, and the seconds that it asks for. Raises TimeoutError when the time is over."""
    host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    connection = HTTPConnection(host, port)
    sockets = [socket.create_connection((host, port), timeout=CONNECT)]
    watch = Timer(max(0.0, until - monotonic()), _shut, [sockets])
    watch.daemon = True
    watch.start()
    try:
        if url.scheme == "https":
            # The handshake is watched, too.
            sockets.append(_tls().wrap_socket(sockets[0], server_hostname=host, do_handshake_on_connect=False))
            sockets[-1].do_handshake()  # type: ignore[attr-defined]
        connection.sock = sockets[-1]
        connection.sock.settimeout(TOTAL)
        if monotonic() >= until:
            raise TimeoutError
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        while answer.status in INTERIM:  # the library has read on after 100 only
            answer.headers = None  # type: ignore[assignment]
            answer.begin()
        if monotonic() >= until:  # it was cut off, and looks whole
            raise TimeoutError
        return answer.status, retry_after.seconds(answer.headers) or 0.0
    except (OSError, HTTPException) as error:
        if monotonic() >= until:
            raise TimeoutError from error
        raise
    finally:
        watch.cancel()
        connection.close()
        for each in sockets:
            each.close()


def _shut(sockets: list[socket.socket]) -> None:
    """Whoever reads or writes there finds an end."""
    try:
        sockets[-1].shutdown(socket.SHUT_RDWR)
    except OSError:  # it is closed already
        return


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
