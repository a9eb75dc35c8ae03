"""WEBHOOKS: events as https://www.standardwebhooks.com describes, with one time limit for the whole request.

Redirects are not followed, and no proxy is used. Of an answer only the status, `Retry-After` and `Date` are read. Our
HTTP library limits each read only: a receiver that sends a byte a second would never time out.
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

# Seconds for the whole request. The specification says 15 to 30, but receivers should answer first and work later. It
# is shorter than the lease of a trial (`outages.circuits.TRIAL`).
TOTAL = 10.0
# Seconds to connect to each address of the host.
CONNECT = 3.0
# Requests at a time.
AT_ONCE = 16

# A final answer follows these (RFC 9110, 15.2). 101, which we never request, is final.
INTERIM = range(102, 200)


class Webhook:
    """Sends events to one webhook, until `close`."""

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
        # A name lookup has no time limit: its thread notices later that it is too late.
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
    """POST; return the status, and the seconds that the answer asks to wait. Raises TimeoutError when time is over."""
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
        while answer.status in INTERIM:  # the library skips 100 only
            answer.headers = None  # type: ignore[assignment]
            answer.begin()
        if monotonic() >= until:  # a shut socket can look like a complete answer
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
    """Shut the socket: reads and writes in other threads end."""
    try:
        sockets[-1].shutdown(socket.SHUT_RDWR)
    except OSError:  # it is closed already
        return


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
