"""Whether users of single sign-on may still be signed in: the provider is asked each hour, and may end sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import time
from typing import Any

from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth import logout
from django.core.cache import cache
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.utils.crypto import salted_hmac
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from requests import RequestException

from staff import oidc
from staff.sessions import is_background, sign_in_again
from staff.single_sign_on import ENDED, KEY, STILL_IN, ask, onward, words

logger = logging.getLogger(__name__)

# Seconds until the provider is asked again whether the user may still be signed in; and after no answer.
ASKED_EACH = 60 * 60
ASKED_AGAIN_EACH = 5 * 60
# How often a browser may not come back from a provider that is up: a user who is locked out there could do it.
UNANSWERED_AT_MOST = 3

LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


def ask_again(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Ask the provider each hour, between two pages and unseen, whether the user may still be signed in.

    A no ends the session. Without an answer it goes on, up to its eight hours, and asks again every five minutes.
    """

    def respond(request: HttpRequest) -> HttpResponse:
        if not _is_due(request):
            return get_response(request)
        known = request.session[KEY]
        known["asked"] = time()
        request.session.modified = True
        try:
            answer = ask(request, STILL_IN, request.get_full_path(), prompt="none")
        except (OAuth2Error, RequestException) as wrong:
            logger.warning("Single sign-on: %s", words(wrong, request))
            return get_response(request)
        if known["unanswered"] >= UNANSWERED_AT_MOST:
            logout(request)
            return sign_in_again(request, ENDED)
        request.session[KEY] = {**known, "unanswered": known["unanswered"] + 1}
        return onward(request, answer) if _is_page(request) else get_response(request)

    return respond


def _is_due(request: HttpRequest) -> bool:
    """Whether it is due. Other requests than pages are not sent on, but count as not answered after another hour.

    Otherwise a user who is locked out there could go on with a browser that opens no page.
    """
    known = request.session.get(KEY)
    if not (known and settings.OIDC_ISSUER and request.user.is_authenticated):
        return False
    if is_background(request) or request.path == reverse("openid_connect_callback"):
        return False
    now, each = time(), ASKED_EACH if _is_page(request) else 2 * ASKED_EACH
    return bool(now - known["answered"] >= each and now - known["asked"] >= ASKED_AGAIN_EACH)


def _is_page(request: HttpRequest) -> bool:
    """Whether a user has opened a page: only such a request may go to another host and back."""
    return request.method == "GET" and request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"


@csrf_exempt
@require_POST
@never_cache
def end_by_provider(request: HttpRequest) -> HttpResponse:
    """Back-channel logout: the provider ends a session, or all sessions of a user, by a signed request.

    https://openid.net/specs/openid-connect-backchannel-1_0.html
    """
    if not settings.OIDC_ISSUER:
        raise Http404
    try:
        claims = oidc.claims_of(request.POST.get("logout_token"), needs=("exp", "jti"))
        if "nonce" in claims or LOGOUT_EVENT not in (claims.get("events") or {}):
            raise oidc.NotBelieved("The token is of another use.")  # such as an ID token
        _end_sessions(claims)
    except (OAuth2Error, RequestException) as wrong:
        logger.warning("Single sign-on: %s", words(wrong, request))
        return JsonResponse({"error": "invalid_request"}, status=400)
    return HttpResponse()


@transaction.atomic  # if a session cannot be ended, the provider may send its token again
def _end_sessions(claims: dict[str, Any]) -> None:
    sub, sid = claims.get("sub"), claims.get("sid")
    once = f"oidc:{salted_hmac(__name__, str(claims['jti']), algorithm='sha256').hexdigest()}"
    if not (sub or sid) or not cache.add(once, "y", claims["exp"] - time() + 2 * oidc.LEEWAY):
        raise oidc.NotBelieved("The token ends nothing, or was sent before.")
    ended = UserSession.objects.filter(data__iss=oidc.issuer())
    if sub:
        ended = ended.filter(data__sub=sub)
    if sid:
        ended = ended.filter(data__sid=sid)
    for session in ended:
        session.end()
