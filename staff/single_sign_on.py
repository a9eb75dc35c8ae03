"""Single sign-on: the OpenID provider decides who gets in, as whom, with which groups (docs/adr/0038)."""

from __future__ import annotations

import logging
from hmac import compare_digest
from math import inf
from secrets import token_urlsafe
from time import time
from typing import Any, NoReturn, cast

from allauth.account.adapter import get_adapter as account_adapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import logout
from django.contrib.auth.signals import user_logged_out
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from requests import RequestException, Session

from staff import oidc
from staff.admission import Refused, admit
from staff.sessions import CONFIRMED

logger = logging.getLogger(__name__)

# The purpose of a request to the provider.
SIGN_IN, STILL_IN, STEP_UP = "sign in", "still signed in", "step up"

# The session's data if it began by single sign-on: the provider's name for the user, the times of the last request and
# of the last yes, and the number of requests without an answer since.
KEY = "single_sign_on"

# Seconds by which a provider's clock, which counts whole ones, may disagree with itself.
AT_ONCE = 2

# OAuth's errors that mean no to "still signed in?", and not a fault of the provider.
NO = ("login_required", "interaction_required", "consent_required", "account_selection_required", "access_denied")

ENDED = "Single sign-on has ended your session."
DOWN = "Single sign-on does not answer. Try again in a few minutes, or ask the person who administers your account."
NOT_DONE = "Single sign-on did not work. Try again; if it goes on, tell the person who administers your account."


# --- The provider, to allauth -------------------------------------------------------------------


class Endpoints(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    @property
    def openid_config(self) -> dict[str, Any]:
        return oidc.kept_document()

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return request.build_absolute_uri(reverse("openid_connect_callback"))

    def get_access_token_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return cast(dict[str, Any], super().get_access_token_data(*args, **kwargs))
        except (KeyError, ValueError) as wrong:  # not JSON, or without a type
            raise oidc.NotBelieved("The provider's answer to a code is no JSON.") from wrong

    def parse_token(self, data: dict[str, Any]) -> SocialToken:
        """An empty token: none is stored."""
        return SocialToken()

    def complete_login(self, request: HttpRequest, app: SocialApp, token: SocialToken, **kwargs: Any) -> SocialLogin:
        answer = kwargs["response"]
        claims = oidc.of_user(oidc.claims_of(answer.get("id_token")), answer["access_token"])
        return self.get_provider().sociallogin_from_response(request, claims)


class Provider(OpenIDConnectProvider):  # type: ignore[misc]
    oauth2_adapter_class = Endpoints

    def get_default_scope(self) -> list[str]:
        return list(settings.OIDC_SCOPES)

    def sociallogin_from_response(self, request: HttpRequest, response: dict[str, Any]) -> SocialLogin:
        login = super().sociallogin_from_response(request, response)
        login.claims = response
        return login

    # Only the provider's name for the user is stored.
    def extract_uid(self, data: dict[str, Any]) -> str:
        return str(data["sub"])

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {}

    def extract_common_fields(self, data: dict[str, Any]) -> dict[str, Any]:
        return {}

    def extract_email_addresses(self, data: dict[str, Any]) -> list[Any]:
        return []


class Adapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """The setting SOCIALACCOUNT_ADAPTER: our rules for who gets in."""

    def get_provider(self, request: HttpRequest, provider: str, client_id: str | None = None) -> Provider:
        """The provider of the settings: no table has its secret."""
        app = SocialApp(
            provider=Provider.id,
            provider_id=oidc.issuer(),  # `sub` is unique within it
            name="Single sign-on",
            client_id=settings.OIDC_CLIENT_ID,
            secret=settings.OIDC_CLIENT_SECRET,
            settings={"oauth_pkce_enabled": True},
        )
        return Provider(request, app=app)

    def get_requests_session(self) -> Session:
        return oidc.Session()

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return False  # `admit` makes the account before

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        asked = sociallogin.state["data"]
        if not compare_digest(str(sociallogin.claims.get("nonce")), asked["nonce"]):
            raise oidc.NotBelieved("The token answers another question.")
        if asked["for"] != SIGN_IN and request.session.get(KEY, {}).get("sub") != sociallogin.claims["sub"]:
            logout(request)
            _refuse(request, sociallogin.state, "Single sign-on knows you as another user than this session's.")
        try:
            sociallogin.account = admit(sociallogin.claims)
        except Refused as refused:
            logout(request)
            _refuse(request, sociallogin.state, str(refused))
        if asked["for"] != SIGN_IN:
            if asked["for"] == STEP_UP:
                age = max(0, _age_of_sign_in(sociallogin.claims))
                if age > time() - asked["at"] + AT_ONCE:
                    _not_confirmed(request, "Single sign-on did not ask you who you are.")
                request.session[CONFIRMED] = time() - age
            request.session[KEY] |= {"answered": time(), "unanswered": 0}
            request.session.modified = True
            raise ImmediateHttpResponse(HttpResponseRedirect(sociallogin.state["next"]))
        sociallogin.user = sociallogin.account.user

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: dict[str, Any] | None = None,
    ) -> None:
        logger.warning("Single sign-on: %s", words(exception, request))
        state = (extra_context or {}).get("state") or {}
        why = DOWN if isinstance(exception, RequestException) else NOT_DONE
        if state and state["data"]["for"] == STILL_IN:
            if request.GET.get("error") not in NO:
                raise ImmediateHttpResponse(HttpResponseRedirect(state["next"]))  # no answer: the session goes on
            logout(request)
            _refuse(request, state, f"{ENDED} Sign in to go on.")
        if state and state["data"]["for"] == STEP_UP:
            _not_confirmed(request, why)
        _refuse(request, state, why)


def _age_of_sign_in(claims: dict[str, Any]) -> float:
    """How long before the token the user signed in at the provider, by its clock. Infinite if that is unknown."""
    made, at = claims["iat"], claims.get("auth_time")
    return float(made - at) if isinstance(at, int | float) else inf


def _not_confirmed(request: HttpRequest, why: str) -> NoReturn:
    messages.error(request, why)
    raise ImmediateHttpResponse(HttpResponseRedirect(reverse("admin:index")))


def words(wrong: Exception | None, request: HttpRequest) -> str:
    """The reason for the log. Messages of other exceptions may contain what the provider sent."""
    if wrong is None:
        return f"the provider says {request.GET.get('error', 'nothing')[:50]!r}."
    return str(wrong) if isinstance(wrong, oidc.NotBelieved) else type(wrong).__name__


def _refuse(request: HttpRequest, state: dict[str, Any], why: str) -> NoReturn:
    raise ImmediateHttpResponse(to_sign_in(request, why, state.get("next")))


def to_sign_in(request: HttpRequest, why: str, back: str | None) -> HttpResponse:
    messages.error(request, why)
    return redirect_to_login(back or reverse("admin:index"), reverse("admin:login"))


# --- The session ---------------------------------------------------------------------------------


def remember(request: HttpRequest, login: SocialLogin) -> None:
    """Store the provider's name for a session that began by single sign-on, so that the provider can end it."""
    now = time()
    request.session[CONFIRMED] = now - min(now, _age_of_sign_in(login.claims))
    request.session[KEY] = {"sub": login.claims["sub"], "asked": now, "answered": now, "unanswered": 0}
    data = {"iss": oidc.issuer(), "sub": login.claims["sub"], "sid": login.claims.get("sid")}
    UserSession.objects.filter(session_key=request.session.session_key).update(data=data)


def connect() -> None:
    user_logged_out.connect(_forget, dispatch_uid="staff.single_sign_on")


def _forget(sender: Any, request: HttpRequest, **kwargs: Any) -> None:
    UserSession.objects.filter(session_key=request.session.session_key).delete()


# --- Pages --------------------------------------------------------------------------------------


@never_cache
@require_GET
def start(request: HttpRequest) -> HttpResponse:
    """Go to the provider, and back. By a link, because `form-action 'self'` blocks forms that lead elsewhere.

    A link on another site leads to our sign-in first: nobody is signed in without having asked for it.
    """
    if not settings.OIDC_ISSUER:
        raise Http404
    # If its session is older than ours may get, the provider has to ask the user again.
    back = request.GET.get("next")
    back = back if back and account_adapter().is_safe_url(back) else reverse("admin:index")
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return redirect_to_login(back, reverse("admin:login"))
    try:
        return ask(request, SIGN_IN, back, max_age=settings.SESSION_COOKIE_AGE)
    except (OAuth2Error, RequestException) as wrong:
        logger.warning("Single sign-on: %s", words(wrong, request))
        return to_sign_in(request, DOWN, back)


def ask(request: HttpRequest, purpose: str, back: str, **parameters: Any) -> HttpResponse:
    """Redirect to the provider. `back` is our own address. Raises as `oidc.document` if the provider is away."""
    oidc.document()  # otherwise the browser would wait for a host that is down
    data = {"for": purpose, "at": time(), "nonce": token_urlsafe(24)}
    provider = Adapter().get_provider(request, oidc.issuer())
    answer: HttpResponse = provider.redirect(
        request, AuthProcess.LOGIN, back, data, auth_params={"nonce": data["nonce"], **parameters}
    )
    return answer


def onward(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """A page that leads to `answer`'s address, also after a form."""
    context = {**admin.site.each_context(request), "title": "Single sign-on", "address": answer["Location"]}
    page = render(request, "staff/onward.html", context)
    add_never_cache_headers(page)
    return page


@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponse:
    if not settings.OIDC_ISSUER:
        raise Http404
    try:
        answer: HttpResponse = OAuth2CallbackView.adapter_view(Endpoints(request, oidc.issuer()))(request)
    except (OAuth2Error, RequestException) as wrong:  # allauth takes the provider's document for given
        logger.warning("Single sign-on: %s", words(wrong, request))
        return to_sign_in(request, DOWN, None)
    return answer
