"""The only module with HTTP: it sends requests, and translates their answers into our errors.

- Nothing was sent (refused, no connection in time): RetryableStepError.
- The service is not ready (429, 503, 408): RetryableStepError, not before its Retry-After (up to four fifths of the
  longest delay of the step's policy: no service delays a workflow for a day).
- The service is working on the same key: UnknownOutcome, with the same delay. An earlier request is on its way.
- Any other 4xx: StepError, with the service's own code. If the answer says `Idempotent-Replayed: true`, as payment
  services do, it is the stored answer for that key (`answers_key`): the first call was refused, too.
- Sent, and then silence, a broken connection, half an answer, an unreadable one, any other status: UnknownOutcome for a
  change, RetryableStepError for a read.

An outage is not the step's own failure (`workflows.outages`): no connection, no answer in time, a broken connection,
408, 425, 429 and 5xx mean that the service is unavailable. Everything else is an answer, unless it is unreadable.

No message contains anything that was sent or received, except that code.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import httpx
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel, ConfigDict, ValidationError

from workflows import request_ids, retry_after
from workflows.definition import Listing, ServiceCall
from workflows.engine import backoff
from workflows.errors import RetryableStepError, StepError, UnknownOutcome
from workflows.operations import amounts
from workflows.outages import Call, call_to

# A connection that was idle for longer is not reused: servers close theirs after 5 s or more, and a request on a
# closing connection has an unknown outcome.
KEEPALIVE_EXPIRY = 3.0
# Seconds. A host that is up accepts a connection within milliseconds.
CONNECT_TIMEOUT = 3.0

# Stated with every refusal that passes with time, because `_retry_after` relies on it, whatever the step's policy says.
JITTER = backoff.DEFAULT.jitter_factor

# Refusals that pass with time: the service is busy, is performing the same request right now, or the patient's token
# has expired since this attempt got it.
UNAVAILABLE_STATUSES = frozenset({408, 425, 429})
PASSING_STATUSES = UNAVAILABLE_STATUSES | {503}
IN_PROGRESS = "idempotency_in_progress"
# Of a service that says no more than that: the sentence says it already.
_REFUSED = "refused"
PASSING_CODES = frozenset({IN_PROGRESS, "token_expired"})


class ServiceAnswer(BaseModel):
    """The part of a service's answer that we read; there may be more."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)


class Confirmation(ServiceAnswer):
    """The answer to a change that only names the patient."""

    patient_uuid: UUID


class _Performed(ServiceAnswer):
    idempotency_key: str
    at: str
    reference: str = ""
    amount_cents: int | None = None
    currency: str = ""

    def in_words(self) -> ServiceCall:
        amount = "" if self.amount_cents is None else amounts.shown(self.amount_cents, self.currency.upper())
        return ServiceCall(self.idempotency_key, self.at, self.reference, amount)


class _Changes(ServiceAnswer):
    changes: list[_Performed]
    next: str = ""


AnswerT = TypeVar("AnswerT", bound=ServiceAnswer)


@dataclass(frozen=True, slots=True)
class Service:
    """A downstream service, by its name in `settings.SERVICES`.

    `operation` names a call for people. Paths and queries contain only ids, because others log them. Calls that can
    have an outage of their own have their own `circuit`: answers to other calls would keep the service's circuit
    closed.
    """

    name: str
    circuit: str = ""

    def read(
        self,
        operation: str,
        path: str,
        *,
        answer: type[AnswerT],
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> AnswerT:
        """Read something: by GET, or with a `body` by POST if it must not be in a URL."""
        method = "GET" if body is None else "POST"
        return self._call(operation, method, path, answer, RetryableStepError, params=query, json=body)

    def change(
        self,
        operation: str,
        path: str,
        *,
        answer: type[AnswerT],
        body: Mapping[str, Any],
        idempotency_key: str,
        token: str = "",
        method: str = "POST",
    ) -> AnswerT:
        """Make a change, once for the key; with the patient's `token` if the service needs it."""
        headers = {"Idempotency-Key": idempotency_key}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return self._call(operation, method, path, answer, UnknownOutcome, json=body, headers=headers)

    def put(self, operation: str, path: str, *, body: Mapping[str, Any], idempotency_key: str, token: str = "") -> None:
        """Set a single value, as `change` does; the answer says only that it is set."""
        self.change(
            operation,
            path,
            answer=Confirmation,
            body=body,
            idempotency_key=idempotency_key,
            token=token,
            method="PUT",
        )

    def listing(self, operation: str) -> Listing:
        """A listing of the service's changes of a kind, oldest first, page by page."""
        return partial(self._list, operation)

    def _list(self, operation: str, since: datetime) -> Iterator[ServiceCall]:
        query = {"operation": operation, "since": since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "after": ""}
        while True:
            page = self.read("list_changes", "/changes", query=query, answer=_Changes)
            yield from (each.in_words() for each in page.changes)
            if not page.next:
                return
            query["after"] = page.next

    def _call(
        self,
        operation: str,
        method: str,
        path: str,
        answer: type[AnswerT],
        unclear: type[RetryableStepError],
        **request: Any,
    ) -> AnswerT:
        """Send a request and read its answer. Raises `unclear` if the outcome cannot be known.

        While the service is known to be unavailable it sends nothing and raises ServiceUnavailable.
        """
        url = self._url(path)
        headers = dict(request.pop("headers", {}))
        if request_id := request_ids.current.get():
            headers[request_ids.HEADER] = request_id
        with call_to(self.circuit or self.name) as call:
            headers |= call.trace_headers
            try:
                response = _client().request(method, url, headers=headers, timeout=_timeout(), **request)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout):
                call.unavailable()
                raise RetryableStepError(f"The {self.name} service cannot be reached.", code="unreachable") from None
            except httpx.DecodingError as error:
                raise unclear(self._no_answer(operation, type(error).__name__), code="no_answer") from None
            except httpx.TransportError as error:
                # Also if a reused connection broke before the first byte: the request may still have arrived.
                call.unavailable()
                raise unclear(self._no_answer(operation, type(error).__name__), code="no_answer") from None
            return self._read(call, response, operation, answer, unclear)

    def _read(
        self,
        call: Call,
        response: httpx.Response,
        operation: str,
        answer: type[AnswerT],
        unclear: type[RetryableStepError],
    ) -> AnswerT:
        """Read an answer. Raises the same as `_call`."""
        if response.status_code in UNAVAILABLE_STATUSES or response.is_server_error:
            call.unavailable()
        elif response.is_client_error:
            call.answered()
        if 400 <= response.status_code < 500 or response.status_code in PASSING_STATUSES:
            raise self._refusal(operation, response)
        if not response.is_success:
            raise unclear(self._no_answer(operation, f"status {response.status_code // 100}xx"), code="no_answer")
        try:
            return answer.model_validate_json(response.content)
        except ValidationError:
            raise unclear(self._no_answer(operation, "unreadable"), code="no_answer") from None

    def _no_answer(self, operation: str, why: str) -> str:
        return f"The {self.name} service gave no clear answer to {operation} ({why})."

    def _refusal(self, operation: str, response: httpx.Response) -> StepError:
        code = _code(response)
        if response.status_code in PASSING_STATUSES or code in PASSING_CODES:
            passing = UnknownOutcome if code == IN_PROGRESS else RetryableStepError
            return passing(
                f"The {self.name} service is not ready for {operation}: {code}.",
                base_delay=_retry_after(response),
                jitter_factor=JITTER,
                code=code,
            )
        remembered = response.headers.get("Idempotent-Replayed", "").lower() == "true"
        why = "" if code == _REFUSED else f": {code}"
        message = f"The {self.name} service refused {operation}{why}."
        return StepError(message, code=code, answers_key=remembered)

    def _url(self, path: str) -> str:
        root = settings.SERVICES[self.name]
        if not root:
            raise ImproperlyConfigured(f"The {self.name} service has no address: set SERVICES_URL.")
        return f"{root}{path}"


# By process, because a connection that is shared over a fork mixes two processes' answers. A parent's client stays
# here, unused and not closed: its connections are the parent's.
_clients: dict[int, httpx.Client] = {}


def _client() -> httpx.Client:
    pid = os.getpid()
    if pid not in _clients:
        _clients[pid] = httpx.Client(
            limits=httpx.Limits(keepalive_expiry=KEEPALIVE_EXPIRY),
            trust_env=False,  # no proxy or .netrc for people's browsing between us and our services
        )
    return _clients[pid]


@atexit.register
def close() -> None:
    """Close this process's connections. The next call opens new ones."""
    client = _clients.pop(os.getpid(), None)
    if client is not None:
        client.close()


def _timeout() -> httpx.Timeout:
    return httpx.Timeout(settings.SERVICES_TIMEOUT, connect=min(CONNECT_TIMEOUT, settings.SERVICES_TIMEOUT))


def _code(response: httpx.Response) -> str:
    """The service's code for its refusal, or one of ours if that is not fit for people."""
    try:
        code = response.json()["code"]
    except (ValueError, LookupError, TypeError):
        code = None
    if isinstance(code, str) and re.fullmatch(r"[a-z][a-z0-9_]{0,63}", code):
        return code
    return "not_ready" if response.status_code in PASSING_STATUSES else _REFUSED


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds to wait, or None."""
    asked = retry_after.seconds(response.headers)
    if asked is None:
        return None
    # Jitter goes both ways, so the delay is raised: it never falls below what the service asks for, or below our own
    # delay. The policy's longest delay is its upper limit.
    return max(asked / (1 - JITTER), backoff.DEFAULT.base_delay)
