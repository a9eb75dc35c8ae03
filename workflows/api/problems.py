"""Errors of the API: RFC 9457 problem documents with a stable `code`, never with a value from the request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec

from django.db import DataError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from workflows import request_ids
from workflows.extras import ExtraMissing
from workflows.ingress.signal_bodies import NoSuchWorkflow, UnsupportedMediaType
from workflows.intake.batching import Overloaded
from workflows.intake.submissions import BusinessKeyTaken, InputInvalid, KeyReused, KeyTaken
from workflows.postgres.deadlines import DatabaseUnavailable
from workflows.postgres.jsonb import InputRefused, Malformed
from workflows.sealing.envelopes import Unreadable

logger = logging.getLogger(__name__)

P = ParamSpec("P")
View = Callable[..., HttpResponse]

CONTENT_TYPE = "application/problem+json"

# A restart of PostgreSQL takes about this long.
RETRY_AFTER_SECONDS = 5


class Problem(Exception):
    """An answer with this status. `code` is for programs and never changes, `detail` is for people."""

    def __init__(self, status: int, code: str, detail: str, **headers: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @property
    def document(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
        }

    def response(self) -> HttpResponse:
        response = JsonResponse(self.document, status=self.status, content_type=CONTENT_TYPE, headers=self.headers)
        # Django would log the path of every 4xx, and a path may contain a client's key.
        response._has_been_logged = True  # type: ignore[attr-defined]
        return response


def api(*methods: str) -> Callable[[Callable[Concatenate[HttpRequest, P], HttpResponse]], View]:
    """Turn a function into an API view for these methods (HEAD with GET), or any; errors become problems."""
    allowed = [*methods, "HEAD"] if "GET" in methods else [*methods]

    def decorate(view: Callable[Concatenate[HttpRequest, P], HttpResponse]) -> View:
        @transaction.non_atomic_requests  # what a 202 promises is committed before the answer
        @csrf_exempt  # no cookie authenticates anybody here
        @wraps(view)
        def wrapper(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            request_id = request_ids.of(request.headers)
            named = request_ids.current.set(request_id)
            try:
                if allowed and request.method not in allowed:
                    raise Problem(
                        405, "method_not_allowed", "This resource has no such method.", Allow=", ".join(allowed)
                    )
                response = view(request, *args, **kwargs)
            except Exception as error:
                response = problem_of(error).response()
            finally:
                request_ids.current.reset(named)
            response[request_ids.HEADER] = request_id
            response["Cache-Control"] = "no-store"
            if response.status_code != HTTPStatus.NOT_MODIFIED:  # RFC 9110, 8.6: it would be the whole answer's length
                response["Content-Length"] = str(len(response.content))
            if request.method == "HEAD":
                response.content = b""
            return response

        return wrapper

    return decorate


def problem_of(error: Exception) -> Problem:
    """The answer to a request that ended with this error. Logs an unforeseen one."""
    retry_after = str(RETRY_AFTER_SECONDS)
    match error:
        case Problem():
            return error
        case Malformed():
            return Problem(400, error.code, str(error))
        case NoSuchWorkflow():
            return Problem(404, error.code, str(error))
        case UnsupportedMediaType():
            return Problem(415, error.code, str(error))
        case InputRefused():
            return Problem(422, error.code, str(error))
        case InputInvalid():
            return Problem(422, "input_invalid", str(error))
        case DataError():
            return Problem(422, "not_storable", "The body is JSON, but PostgreSQL cannot keep it.")
        case KeyReused():
            text = "You have used this Idempotency-Key before, for another payload."
            return Problem(422, "idempotency_key_reused", text)
        case KeyTaken():
            return Problem(409, "idempotency_key_taken", "This Idempotency-Key is in use by another client.")
        case BusinessKeyTaken():
            text = (
                "This tenant has a workflow of this type and business key, with another input or from another client."
            )
            return Problem(409, "business_key_taken", text)
        case Overloaded():
            text = "More arrives than can be stored now, and nothing of this was. Send it again with the same key."
            return Problem(503, "overloaded", text, Retry_After=retry_after)
        case DatabaseUnavailable():
            text = "Nothing was stored as far as we know. Send it again with the same key."
            return Problem(503, "database_unavailable", text, Retry_After=retry_after)
        case Unreadable() | ExtraMissing():
            logger.error("Error handling a request: %s", str(error))
            text = "We lack a key of our own, and nothing was stored. Send it again."
            return Problem(503, "key_missing", text, Retry_After=retry_after)
        case _:
            logger.error("Error handling a request: %s", type(error).__name__, exc_info=error)
            return Problem(500, "internal_error", "The error is ours. Send it again later with the same key.")


def not_installed(missing: ExtraMissing) -> View:
    """A view that stands in for one that needs an extra."""

    @api()
    def view(request: HttpRequest) -> HttpResponse:
        raise Problem(501, "not_installed", str(missing))

    return view


@api()
def not_found(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    raise Problem(404, "not_found", "There is nothing here.")
