"""The sandbox's HTTP: finds the operation, performs it once for its idempotency key, and applies faults."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from onboarding.sandbox.calls import CallLog
from onboarding.sandbox.faults import Fault, FaultBook
from onboarding.sandbox.services import OPERATIONS, ROUTES, Call, Refused, Route, arrange_account, check_token
from onboarding.sandbox.store import EFFECT_FILTERS, Performed, Store

LARGEST_BODY = 1_000_000  # bytes
MICROSECONDS = "%Y-%m-%dT%H:%M:%S.%fZ"  # of fixed length, so that times compare as texts

FAULT_CODES = {409: "idempotency_in_progress", 422: "refused", 429: "too_many_requests", 503: "unavailable"}
# The status that replaces performing a request, by the kind of its fault; 0 is never sent.
INSTEAD = {"capacity": 503, "replay_500": 500, "silent": 0}


@dataclass(frozen=True)
class Request:
    """A request as it came."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    raw_body: bytes

    @cached_property
    def path(self) -> tuple[str, ...]:
        return tuple(unquote(part) for part in urlsplit(self.target).path.strip("/").split("/"))

    @cached_property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def idempotency_key(self) -> str:
        return self.headers.get("idempotency-key", "")

    @property
    def token(self) -> str:
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def json(self) -> dict[str, Any]:
        try:
            body = json.loads(self.raw_body or b"{}")
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise Refused(400, "malformed", "the body is not a JSON object")
        return body

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(b"\n".join([self.method.encode(), self.target.encode(), self.raw_body])).hexdigest()


@dataclass(frozen=True)
class Response:
    status: int
    body: dict[str, Any]
    replayed: bool = False  # from the memory of its key: performed before, and not again

    @classmethod
    def refusal(cls, refused: Refused) -> Response:
        return cls(refused.status, {"code": refused.code} | ({"detail": refused.detail} if refused.detail else {}))


class Sandbox:
    """Everything but the sockets. `key_ttl`: seconds for which a key is remembered after its change; None: for ever."""

    def __init__(self, directory: Path, seed: int | None = None, *, key_ttl: float | None = None) -> None:
        self.store = Store(directory)
        self.key_ttl = key_ttl
        self.faults = FaultBook(self.store, seed)
        self.calls = CallLog()
        self.events: list[dict[str, Any]] = []  # received by webhook (docs/outbox.md) since it started
        self._routes = [(route, _pattern(route)) for route in ROUTES]

    def answer(self, request: Request) -> tuple[Response, Fault | None]:
        """Answer a request. Also returns the fault, if any, that determines how the answer is sent."""
        try:
            if request.path[0].startswith("_"):
                return self._arrange(request), None
            route, names = self._route(request)
        except Refused as refused:
            return Response.refusal(refused), None
        looked_up = request.query.get("idempotency_key", "")
        fault = self.faults.strike(route.service, route.operation, request.idempotency_key, looked_up)
        instead = _instead(fault) if fault else None
        self.calls.add(route.service, answered_5xx=instead is not None and instead.status >= 500)
        if instead is not None:
            return instead, fault
        if fault is not None and fault.kind == "slow":
            time.sleep(fault.delay_s or 0)
        try:
            return self._perform(route, names, request), fault
        except Refused as refused:
            return Response.refusal(refused), fault

    def _perform(self, route: Route, names: dict[str, str], request: Request) -> Response:
        """Perform an operation once for its key: the change, its effect and its answer are one commit."""
        owner = check_token(self.store, request.token) if route.token else ""
        call = Call(self.store, names, request.query, request.json, request.idempotency_key, owner)
        if not route.changes:
            return Response(200, route.perform(call))
        if not call.idempotency_key:
            raise Refused(400, "idempotency_key_missing")
        with self.store.transaction():
            known = self.store.performed(route.service, call.idempotency_key, self._remembers_since())
            if known is None:
                performed = Performed(request.fingerprint, route.perform(call))
                self.store.add(route.service, route.operation, call.idempotency_key, _now(), performed)
                return Response(201, performed.answer)
        if known.fingerprint != request.fingerprint:
            raise Refused(422, "idempotency_key_reused")
        return Response(201, known.answer, replayed=True)

    def _remembers_since(self) -> str:
        """The time before which all keys are forgotten; empty if none ever is."""
        return "" if self.key_ttl is None else _now(ago=self.key_ttl)

    def _route(self, request: Request) -> tuple[Route, dict[str, str]]:
        """The route of a request, and the names in its path."""
        for route, pattern in self._routes:
            if route.method == request.method and (found := pattern.fullmatch("/".join(request.path))):
                return route, found.groupdict()
        raise Refused(404, "no_such_operation")

    # --- what the sandbox offers about itself ----------------------------------------------------

    def _arrange(self, request: Request) -> Response:
        match request.method, request.path:
            case "GET", ("_healthz",):
                return Response(200, {"status": "ok"})
            case "GET", ("_effects",):
                return Response(200, {"effects": self._effects(request.query)})
            case "GET", ("_calls",):
                return Response(200, {"calls": self._calls(request.query)})
            case "GET", ("_answers", service, key):
                if (known := self.store.performed(service, key)) is None:
                    raise Refused(404, "no_such_answer")
                return Response(200, {"status": 201, "body": known.answer})
            case "GET", ("_faults",):
                return Response(200, {"faults": self.faults.all()})
            case "POST", ("_faults",):
                return Response(201, self.faults.add(request.json).model_dump())
            case "DELETE", ("_faults",):
                self.faults.clear()
                return Response(200, {"faults": []})
            case "DELETE", ("_faults", id):
                return Response(200, self.faults.lift(id).model_dump())
            case "POST", ("_events",):
                self.events.append(request.json)
                return Response(200, {})
            case "GET", ("_events",):
                return Response(200, {"events": self.events[-1000:]})
            case "POST", ("_accounts",):
                with self.store.transaction():
                    return Response(201, arrange_account(Call(self.store, {}, {}, request.json)))
        raise Refused(404, "no_such_page")

    def _effects(self, query: dict[str, str]) -> list[dict[str, str]]:
        since, filters = _filters(query, EFFECT_FILTERS)
        return self.store.effects(since.strftime(MICROSECONDS) if since else "", **filters)

    def _calls(self, query: dict[str, str]) -> list[dict[str, Any]]:
        since, filters = _filters(query, ("service",))
        service = filters.get("service")
        if service is not None and service not in OPERATIONS:  # it would look like a service without calls
            raise Refused(400, "malformed", f"service: one of {', '.join(OPERATIONS)}")
        return self.calls.all(service=service, since=since)


class SandboxServer(ThreadingHTTPServer):
    """A thread for each connection. A thread that is busy with a fault does not keep the process from ending."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hung up needs no report.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body in one packet
    server: SandboxServer

    def do_GET(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            self._send(Response(400, {"code": "malformed", "detail": "a Content-Length up to 1 MB is needed"}))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self.rfile.read(int(length)))
        response, fault = self.server.sandbox.answer(request)
        match fault.kind if fault else None:
            case "silent" | "timeout_after":
                self._wait_until_client_hangs_up()
            case "drop_after":
                self._cut()
            case "half":
                self._send(response, half=True)
                self._cut()
            case _:
                self._send(response)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _send(self, response: Response, *, half: bool = False) -> None:
        body = json.dumps(response.body).encode()
        self.send_response_only(response.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if response.status in (429, 503):
            self.send_header("Retry-After", "1")
        if response.replayed:
            self.send_header("Idempotent-Replayed", "true")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if half else body)
        self.wfile.flush()

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _wait_until_client_hangs_up(self) -> None:
        self.close_connection = True
        select.select([self.connection], [], [])


def serve_until(server: SandboxServer, signals: set[signal.Signals]) -> None:
    """Serve until one of `signals` arrives, then close everything."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # in all threads, so that sigwait gets them
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    signal.sigwait(signals)
    server.shutdown()
    thread.join()
    server.server_close()
    server.sandbox.store.close()


def _instead(fault: Fault) -> Response | None:
    """The answer that replaces performing a request; None if the fault lets it be performed."""
    status = fault.status if fault.kind == "status" else INSTEAD.get(fault.kind)
    return None if status is None else Response(status, {"code": fault.code or FAULT_CODES.get(status, "fault")})


def _filters(query: dict[str, str], known: Collection[str]) -> tuple[datetime | None, dict[str, str]]:
    """The `since` of a query, if any, and its other filters, which must be `known`."""
    if unknown := query.keys() - {"since", *known}:
        raise Refused(400, "malformed", f"no filter {', '.join(sorted(unknown))}")
    since = query.get("since", "")
    try:
        # An unescaped plus sign arrives as a space.
        at = datetime.fromisoformat(since.replace(" ", "+")).astimezone(UTC) if since else None
    except (ValueError, OverflowError):
        raise Refused(400, "malformed", "since: an ISO 8601 time is needed") from None
    return at, {name: value for name, value in query.items() if name != "since"}


def _pattern(route: Route) -> re.Pattern[str]:
    """The pattern of a route's paths, including its service, with a group for each {name}."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.service + route.path))


def _now(*, ago: float = 0) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).strftime(MICROSECONDS)
