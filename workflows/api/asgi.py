"""The intake as an ASGI application: submissions go into batches; a few threads run views for everything else."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from io import BytesIO
from time import perf_counter
from typing import Any, TypeVar
from uuid import UUID

from django.core.handlers.asgi import ASGIRequest

from workflows import request_ids, trace_context
from workflows.api import problems, requests, urls
from workflows.api.submissions import receipt
from workflows.definition import WorkflowDefinition
from workflows.ingress import api_keys
from workflows.ingress.bounds import SUBMIT, Key
from workflows.intake.batching import Batches
from workflows.intake.metrics import REQUEST_SECONDS, count_answer
from workflows.intake.submissions import Submission
from workflows.intake.watching import Watch
from workflows.postgres import jsonb
from workflows.postgres.deadlines import TIMEOUT_SECONDS, DatabaseUnavailable

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
T = TypeVar("T")

# Each thread has a connection to the database, for questions about submissions and for new API keys.
THREADS = 4
# Bytes. A thread parses a larger body, so that the loop serves other clients in those milliseconds.
LARGE = 32 * 1024
# Seconds for a thread's answer: connecting, a repeated query, and some time in the queue.
ANSWERED_WITHIN = 15.0

# Seconds that a refusal for an API key's limit is held back: a client that repeats at once then sends one
# request in two seconds on each connection. It costs the loop 70 microseconds; at once, a few connections would fill
# the loop.
HELD_BACK_SECONDS = 2.0

SUBMISSIONS = "/v1/submissions"

# The origin before the path, if a target has the absolute form, as proxies send it (RFC 9112, 3.2.2).
_ORIGIN = re.compile(r"https?://[^/]*", re.IGNORECASE)

# Seconds. A process that has to stop allows longer for open requests (gunicorn.conf.py).
LONGEST_WAIT = 10
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?(\d{1,6})\"?\s*(?:$|[,;])", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Intake:
    """Takes submissions of one definition. `limits` are those of `Batches`."""

    def __init__(self, definition: WorkflowDefinition, **limits: Any) -> None:
        self.threads = ThreadPoolExecutor(THREADS, "intake")
        self._parser = ThreadPoolExecutor(1, "parser")  # more threads would only slow the loop down
        self._definition = definition
        self._batches = Batches(definition, **limits)
        self._watch = Watch(self.threads)
        self._refreshing: asyncio.Future[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        began = perf_counter()
        if not scope["path"].startswith("/"):
            scope = {**scope, "path": _ORIGIN.sub("", scope["path"])}
        headers = headers_of(scope)
        request_id = request_ids.of(headers)
        try:
            if scope["path"] == SUBMISSIONS and scope["method"] == "POST":
                answer = await self._take(headers, request_id, receive)
            elif scope["path"] in ("/healthz", "/metrics"):
                answer = respond(scope)  # in this loop: it shows that the loop is alive, and waits for nothing
            else:
                answer = await self._in_thread(partial(respond, scope), ANSWERED_WITHIN)
            if answer.status in (200, 304) and (seconds := _preferred_wait(scope, headers)):  # found, and the client's
                key = UUID(scope["path"].removeprefix(f"{SUBMISSIONS}/"))
                if await self._watch.until_finished(key, seconds):
                    began = perf_counter()
                    answer = await self._in_thread(partial(respond, scope), ANSWERED_WITHIN)
                    answer.headers.append((b"preference-applied", f"wait={seconds}".encode()))
        except Exception as error:
            answer = _refusal(error, request_id)
        if scope["path"].startswith(SUBMISSIONS):
            REQUEST_SECONDS.observe(perf_counter() - began)
            count_answer(answer.status)
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS and len(headers.get("content-length", "")) < 5:
            # From 10,000 bytes on the body would take memory meanwhile, and its connection is closed anyway.
            await asyncio.sleep(HELD_BACK_SECONDS)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        for threads in (self.threads, self._parser):
            threads.shutdown(wait=False, cancel_futures=True)
        await send({"type": "lifespan.shutdown.complete"})

    async def close(self) -> None:
        await self._batches.close()

    async def _take(self, headers: requests.Headers, request_id: str, receive: Receive) -> Response:
        """Store a submission; 202 with its status. The view `submissions.submit` does the same, one at a time."""
        api_key = await self._key_of(headers)
        requests.ensure_may_start(api_key, self._definition)
        key = requests.idempotency_key_of(headers)
        requests.ensure_json(headers)
        length = requests.length_of(headers)
        # The body and its value have no names, so that neither is kept while the submission waits.
        entry = await self._batches.enter(
            Submission(
                key,
                await self._payload(receive, length),
                api_key.client,
                request_id,
                trace_context.to_store(headers),
                api_key.tenant,
            )
        )
        location = (b"location", f"{SUBMISSIONS}/{key}".encode())
        return _answer(202, receipt(entry), b"application/json", request_id, [location])

    async def _payload(self, receive: Receive, length: int) -> jsonb.Document:
        body = await _read(receive, length)
        if length <= LARGE:
            return jsonb.parse(body)
        return await self._in_thread(partial(jsonb.parse, body), ANSWERED_WITHIN, self._parser)

    async def _key_of(self, headers: requests.Headers) -> Key:
        """The request's API key, which may submit. Only one that is not in the table takes a query, in a thread."""
        text = requests.api_key_of(headers)
        key = api_keys.table.key_at_once(text)
        if key is None:
            key = await self._in_thread(partial(api_keys.table.key_of, text), TIMEOUT_SECONDS)
        elif api_keys.table.wants_refresh and (self._refreshing is None or self._refreshing.done()):
            self._refreshing = asyncio.get_running_loop().run_in_executor(self.threads, api_keys.table.refresh)
        if key is not None and api_keys.table.claim_note(key):
            asyncio.get_running_loop().run_in_executor(self.threads, api_keys.table.note_use, key)
        return requests.permitted(key, SUBMIT)

    async def _in_thread(
        self, function: Callable[[], T], seconds: float, threads: ThreadPoolExecutor | None = None
    ) -> T:
        """The function's result. Raises DatabaseUnavailable after `seconds`: only the database takes that long."""
        try:
            return await asyncio.wait_for(
                asyncio.get_running_loop().run_in_executor(threads or self.threads, function), timeout=seconds
            )
        except TimeoutError:
            raise DatabaseUnavailable from None


def headers_of(scope: Scope) -> dict[str, str]:
    """A request's headers by lower-case name. A header that was sent twice is joined, as in WSGI."""
    headers: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name, text = raw.decode("latin-1"), value.decode("latin-1")
        headers[name] = f"{headers[name]},{text}" if name in headers else text
    return headers


def _preferred_wait(scope: Scope, headers: requests.Headers) -> int:
    """Seconds for which the client wants the answer about a submission delayed; at most LONGEST_WAIT.

    RFC 7240, 4.3. As the RFC says, an unreadable preference is ignored.
    """
    if not scope["path"].startswith(f"{SUBMISSIONS}/"):
        return 0
    found = _WAIT.search(headers.get("prefer", ""))
    return min(int(found[1]), LONGEST_WAIT) if found else 0


def respond(scope: Scope) -> Response:
    """The answer of a view that reads no body, without middleware: sessions and CSRF are for browsers."""
    request = ASGIRequest(scope, BytesIO())
    match = urls.INTAKE.resolve(request.path_info)
    response = match.func(request, *match.args, **match.kwargs)
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    return Response(response.status_code, headers, response.content)


async def _read(receive: Receive, length: int) -> bytes:
    """The body. It ends early when the client has gone, or has taken too long."""
    chunks = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return requests.whole(b"".join(chunks), length)


def _refusal(error: Exception, request_id: str) -> Response:
    named = request_ids.current.set(request_id)  # for the log message
    problem = problems.problem_of(error)
    request_ids.current.reset(named)  # otherwise a batch's task would inherit it
    headers = [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
    return _answer(problem.status, problem.document, problems.CONTENT_TYPE.encode(), request_id, headers)


def _answer(
    status: int, document: dict[str, Any], content_type: bytes, request_id: str, headers: list[tuple[bytes, bytes]]
) -> Response:
    body = json.dumps(document).encode()
    of_all = [
        (b"content-type", content_type),
        (b"cache-control", b"no-store"),
        (b"content-length", str(len(body)).encode()),
        (request_ids.HEADER.lower().encode(), request_id.encode()),
    ]
    return Response(status, [*of_all, *headers], body)
