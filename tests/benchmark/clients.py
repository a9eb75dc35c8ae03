"""Clients of the intake by the hundred, in one event loop: some send as fast as they are answered, some do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from uuid import uuid4

import uvloop

from tests.benchmark.database import PAYLOAD, BenchmarkError

# Seconds between two bytes of a client that trickles.
TRICKLE = 0.5


@dataclass
class Round:
    """What came of a round, in seconds: its length, the time of each answer, and the processor time of all of it."""

    seconds: float = 0.0
    processor: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds

    @property
    def cost(self) -> float:
        """Seconds of processor time for each submission."""
        return self.processor / max(len(self.latencies), 1)

    def percentile(self, percent: float) -> float:
        """In seconds; of a round without an answer, all of it."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else self.seconds


def request_maker(key: str) -> Callable[[], bytes]:
    """Makes requests with a submission each, of another patient every time, all of the same length."""
    sample = json.loads(PAYLOAD.read_text())
    patient = {**sample["patient"], "email": "EMAIL", "phone": "PHONE"}
    body = json.dumps({**sample, "patient": patient})
    body = body.replace('"EMAIL"', '"{name}@example.com"'.replace("{name}", "\1")).replace("PHONE", "+1555\2")
    length = len(body.replace("\1", "x" * 36).replace("\2", "1234567"))
    head = (
        f"POST /v1/submissions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Idempotency-Key: \1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    template = head + body

    def make() -> bytes:
        name = uuid4()
        return template.replace("\1", str(name)).replace("\2", f"{name.int % 10**7:07}").encode()

    return make


class Client(asyncio.Protocol):
    """Sends a request, waits for the answer, sends the next one. What is in flight at the end is not counted."""

    def __init__(self, make: Callable[[], bytes], into: Round) -> None:
        self._make, self._into = make, into
        self._answer = b""
        self._sent = 0.0
        self.failed: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._answer.endswith(b"}"):  # an answer is short, and whole when its body ends
            return
        self._into.latencies.append(monotonic() - self._sent)
        if not self._answer.startswith(b"HTTP/1.1 202"):
            if self.failed is not None and not self.failed.done():
                self.failed.set_exception(BenchmarkError(f"The intake answered: {self._answer[:300]!r}"))
            return
        self._answer = b""
        self._send()

    def _send(self) -> None:
        request = self._make()
        self._sent = monotonic()
        self._transport.write(request)  # type: ignore[attr-defined]


class Trickling(asyncio.Protocol):
    """Sends its request a byte at a time; with nothing to send it is idle."""

    def __init__(self, request: bytes) -> None:
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next(0)

    def _next(self, position: int) -> None:
        if position < len(self._request) - 1 and not self._transport.is_closing():
            self._transport.write(self._request[position : position + 1])  # type: ignore[attr-defined]
            asyncio.get_running_loop().call_later(TRICKLE, self._next, position + 1)


def send(port: int, key: str, *, seconds: float, connections: int, idle: int = 0, trickling: int = 0) -> Round:
    """Send for so long over so many connections, beside others that are idle or trickle."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_send(port, key, seconds, connections, idle, trickling))


async def _send(port: int, key: str, seconds: float, connections: int, idle: int, trickling: int) -> Round:
    loop = asyncio.get_running_loop()
    make, into = request_maker(key), Round()
    failed = loop.create_future()
    slow = [b""] * idle + [make()] * trickling
    transports = [(await loop.create_connection(lambda: Trickling(each), "127.0.0.1", port))[0] for each in slow]  # noqa: B023
    if slow:
        await asyncio.sleep(1)
    clients = [Client(make, into) for _ in range(connections)]
    began = monotonic()
    for client in clients:
        client.failed = failed
        transports.append((await loop.create_connection(lambda: client, "127.0.0.1", port))[0])  # noqa: B023
    await asyncio.wait({failed}, timeout=seconds)
    into.seconds = monotonic() - began
    latencies = list(into.latencies)
    for transport in transports:
        transport.abort()
    if failed.done():
        failed.result()
    failed.cancel()
    return Round(into.seconds, latencies=latencies)
