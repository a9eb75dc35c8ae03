"""Clients of the intake by the hundred, in one event loop: some send as fast as they are answered, some do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID, uuid4

import uvloop

from tests.benchmark.database import PAYLOAD, BenchmarkError

# Seconds between two bytes of a client that trickles.
TRICKLE = 0.5
# What stands for another patient's name and number in each submission.
NAME, NUMBER = str(UUID(int=0)), "#" * 7


@dataclass
class Round:
    """What came of a round, in seconds: its length, the time of each answer, and the processor time of all of it."""

    seconds: float = 0.0
    processor: float = 0.0
    refused: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


def request_maker(key: str) -> Callable[[], bytes]:
    """Makes requests with a submission each, of another patient every time, all of the same length."""
    sample = json.loads(PAYLOAD.read_text())
    patient = {**sample["patient"], "email": f"{NAME}@example.com", "phone": f"+1555{NUMBER}"}
    body = json.dumps({**sample, "patient": patient})
    template = (
        f"POST /v1/submissions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Idempotency-Key: {NAME}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )

    def make() -> bytes:
        name = uuid4()
        return template.replace(NAME, str(name)).replace(NUMBER, f"{name.int % 10**7:07}").encode()

    return make


class Client(asyncio.Protocol):
    """Sends a request, waits for the answer, sends the next one. What is in flight at the end is not counted."""

    def __init__(self, make: Callable[[], bytes], latencies: list[float], failed: asyncio.Future[None]) -> None:
        self._make, self._latencies, self._failed = make, latencies, failed
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._answer.endswith(b"}"):  # an answer is short, and whole when its body ends
            return
        self._latencies.append(monotonic() - self._sent)
        if self._answer.startswith(b"HTTP/1.1 202"):
            self._answer = b""
            self._send()
        elif not self._failed.done():
            self._failed.set_exception(BenchmarkError(f"The intake answered: {self._answer[:300]!r}"))

    def _send(self) -> None:
        request = self._make()
        self._sent = monotonic()
        self._transport.write(request)  # type: ignore[attr-defined]


class Slow(asyncio.Protocol):
    """Sends its request a byte at a time, and never the last one; with nothing to send it is idle."""

    def __init__(self, request: bytes) -> None:
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._next(0)

    def _next(self, position: int) -> None:
        if position < len(self._request) - 1 and not self._transport.is_closing():
            self._transport.write(self._request[position : position + 1])  # type: ignore[attr-defined]
            asyncio.get_running_loop().call_later(TRICKLE, self._next, position + 1)


class Flooding(asyncio.Protocol):
    """Sends with a key that is over its limit, and again as soon as it is refused. `refused` has one for each."""

    def __init__(self, make: Callable[[], bytes], refused: list[None]) -> None:
        self._make, self._refused = make, refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._make())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"}"):
            self._refused.append(None)
            self._transport.write(self._make())  # type: ignore[attr-defined]


def send(
    port: int, key: str, *, seconds: float, connections: int, slow: int = 0, flood: int = 0, over: str = ""
) -> Round:
    """Send for so long over so many connections, beside so many others of which half are idle and half trickle.

    And beside a `flood` of others, whose API key `over` is over its limit.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_send(port, key, seconds, connections, slow, flood, over))


async def _send(port: int, key: str, seconds: float, connections: int, slow: int, flood: int, over: str) -> Round:
    loop = asyncio.get_running_loop()
    make, latencies, transports = request_maker(key), list[float](), list[asyncio.BaseTransport]()

    async def connect(client: asyncio.Protocol) -> None:
        transports.append((await loop.create_connection(lambda: client, "127.0.0.1", port))[0])

    for number in range(slow):
        await connect(Slow(make() if number % 2 else b""))
    make_over, refused = request_maker(over), list[None]()
    for _ in range(flood):
        await connect(Flooding(make_over, refused))
    if slow or flood:
        await asyncio.sleep(1)
    failed, began = loop.create_future(), monotonic()
    for _ in range(connections):
        await connect(Client(make, latencies, failed))
    await asyncio.wait({failed}, timeout=seconds)
    found = Round(monotonic() - began, refused=len(refused), latencies=[*latencies])
    for transport in transports:
        transport.abort()  # type: ignore[attr-defined]
    if failed.done():
        failed.result()
    failed.cancel()
    return found
