"""THE DOOR of the operator's API: a key, the person behind it, and refusals as problem documents.

The key's row and its person are read anew for each request. So a revoked key, a closed account and a right that was
taken away count at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse

from workflows.api.problems import Problem, View, api
from workflows.api.requests import key_of
from workflows.errors import NotAllowed
from workflows.features.operator_api.proposals import Changed, KeyReused, NotFound
from workflows.ingress.bounds import LOOK
from workflows.models import ApiKey
from workflows.postgres.deadlines import query_in_time
from workflows.postgres.jsonb import Document

if TYPE_CHECKING:
    from django.contrib.auth.models import User

P = ParamSpec("P")
# Seconds of one answer: a preview of 10,000 workflows takes some of them.
ANSWERED_WITHIN = 20.0
_REFUSALS = (PermissionDenied, Http404, BadRequest, SuspiciousOperation, NotAllowed, KeyReused, NotFound)


class OperatorRequest(HttpRequest):
    """A request whose `user` is the person behind its key, as the console's pages read it."""

    user: User
    api_key: ApiKey
    document: Document | None  # the body, once it is read


def operator(**rights: str) -> Callable[[Callable[Concatenate[OperatorRequest, P], HttpResponse]], View]:
    """Turn a function into a view of the operator's API. `rights`: for each method, the right that a key needs.

    The function may run twice, if the database was away: see `query_in_time`.
    """

    def decorate(view: Callable[Concatenate[OperatorRequest, P], HttpResponse]) -> View:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            known = key_of(request.headers, rights.get(request.method or "", LOOK))  # HEAD is like GET
            caller: Any = request
            caller.document = None

            def answer() -> HttpResponse:
                caller.api_key, caller.user = _key_and_person(known.id)
                return view(caller, *args, **kwargs)

            try:
                return query_in_time(answer, seconds=ANSWERED_WITHIN)
            except _REFUSALS as error:
                raise _problem(error) from None

        return api(*rights)(wrapper)  # type: ignore[arg-type]  # of the view it keeps the name alone

    return decorate


def _key_and_person(key_id: int) -> tuple[ApiKey, User]:
    """The key and the person behind it, as they are now. Raises Problem unless both are still valid."""
    key = ApiKey.objects.select_related("person").filter(pk=key_id, revoked_at=None).first()
    if key is None or key.person is None or not (key.person.is_active and key.person.is_staff):
        text = "The API key is revoked, or the person behind it may not sign in to the console any more."
        raise Problem(401, "api_key_invalid", text, WWW_Authenticate='Bearer error="invalid_token"')
    return key, key.person


def _problem(error: Exception) -> Problem:
    match error:
        case PermissionDenied():
            return Problem(HTTPStatus.FORBIDDEN, "not_permitted", "The person behind your API key may not do this.")
        case Http404() | NotFound():
            return Problem(HTTPStatus.NOT_FOUND, "not_found", "There is nothing here that you may see.")
        case KeyReused():
            text = "You have used this Idempotency-Key before, for another proposal."
            return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency_key_reused", text)
        case Changed():
            return Problem(HTTPStatus.CONFLICT, "changed", str(error))
        case NotAllowed():
            return Problem(HTTPStatus.CONFLICT, "refused", str(error))
    text = "There is no such filter, or it has no such value."
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "filter_invalid", text)
