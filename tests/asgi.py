"""Requests to an ASGI application in this process, without a server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.db import connections
from django.utils.datastructures import CaseInsensitiveMapping

from workflows.api.asgi import THREADS, Intake
from workflows.definition import WorkflowDefinition


@dataclass
class Answer:
    status_code: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def status_line(self) -> str:
        return f"{self.status_code} {HTTPStatus(self.status_code).phrase}"


async def request(
    application: Any, method: str, path: str, headers: list[tuple[str, str]] | None = None, *chunks: bytes
) -> Answer:
    """Send a request whose body comes in these chunks, and then nothing: the client is gone."""
    answer = Answer(0, {}, b"")
    left = list(chunks) or [b""]

    async def receive() -> dict[str, Any]:
        if not left:
            return {"type": "http.disconnect"}
        chunk = left.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(left)}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status_code = message["status"]
            sent = {name.decode().title(): value.decode() for name, value in message["headers"]}
            answer.headers = CaseInsensitiveMapping(sent)
        else:
            answer.content += message["body"]

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers or []],
    }
    await application(scope, receive, send)
    return answer


class Served:
    """An intake in this process, with a loop of its own, asked as by Django's test client."""

    def __init__(self, intake: Intake, runner: asyncio.Runner) -> None:
        self._intake, self._runner = intake, runner

    def request(self, method: str, path: str, headers: list[tuple[str, str]] | None = None, *chunks: bytes) -> Answer:
        return self._runner.run(request(self._intake, method, path, headers, *chunks))

    def all_at_once(self, times: int, *given: Any) -> list[Answer]:
        """The answers to so many of the same request, which have a minute."""

        async def ask() -> list[Answer]:
            async with asyncio.timeout(60):
                return await asyncio.gather(*(request(self._intake, *given) for _ in range(times)))

        return self._runner.run(ask())

    def generic(
        self, method: str, path: str, data: str | bytes = b"", content_type: str = "", headers: Any = None
    ) -> Answer:
        body = data.encode() if isinstance(data, str) else data
        sent = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
        return self.request(method, path, [*sent.items()], body)

    def post(self, path: str, data: str | bytes, content_type: str, headers: Any) -> Answer:
        return self.generic("POST", path, data, content_type, headers)

    def get(self, path: str, headers: Any = None) -> Answer:
        return self.generic("GET", path, headers=headers)

    def delete(self, path: str) -> Answer:
        return self.generic("DELETE", path)


@contextmanager
def served(definition: WorkflowDefinition, **limits: Any) -> Iterator[Served]:
    """The intake of a definition; its connections are closed at the end."""
    intake = Intake(definition, **limits)
    with asyncio.Runner() as runner:
        try:
            yield Served(intake, runner)
        finally:
            runner.run(intake.close())
            _close_connections_of(intake)


def _close_connections_of(intake: Intake) -> None:
    """Each of its threads may have one. There are as many in the end as there may be."""
    together = threading.Barrier(THREADS + 1)

    def close() -> None:
        together.wait(10)  # so that each thread does this once
        connections.close_all()

    closing = [intake.threads.submit(close) for _ in range(THREADS)]
    together.wait(10)
    for each in closing:
        each.result(10)
    intake.threads.shutdown()
