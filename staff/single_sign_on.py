"""Single sign-on: the OpenID provider decides who gets in, as whom, with which groups (docs/adr/0038)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from hmac import compare_digest
from math import inf
from secrets import token_urlsafe
from time import time
from typing import Any, NoReturn, cast

from allauth.account.adapter import get_adapter as account_adapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialLogin, SocialToken
from allauth.socialaccount.providers.base.constants import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import logout
from django.contrib.auth.models import Group, User
from django.contrib.auth.signals import user_logged_out
from django.contrib.auth.views import redirect_to_login
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.utils.crypto import salted_hmac
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from requests import RequestException, Session

from staff import oidc
from staff.records import record
from staff.sessions import CONFIRMED, is_background, sign_in_again

logger = logging.getLogger(__name__)

# The purpose of a request to the provider.
SIGN_IN, STILL_IN, STEP_UP = "sign in", "still signed in", "step up"

# The session's data if it began by single sign-on: the provider's name for the user, the times of the last request and
# of the last yes, and the number of requests without an answer since.
KEY = "single_sign_on"

# Seconds until the provider is asked again whether the user may still be signed in; and after no answer.
ASKED_EACH = 60 * 60
ASKED_AGAIN_EACH = 5 * 60
# How often a browser may not come back from a provider that is up: a user who is locked out there could do it.
UNANSWERED_AT_MOST = 3

LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"

# Seconds by which a provider's clock, which counts whole ones, may disagree with itself.
AT_ONCE = 2

# OAuth's errors that mean no to "still signed in?", and not a fault of the provider.
NO = ("login_required", "interaction_required", "consent_required", "account_selection_required", "access_denied")

ENDED = "Single sign-on has ended your session."
DOWN = "Single sign-on does not answer. Try again in a few minutes, or ask the person who administers your account."
NO_GROUP = "Single sign-on gives you no group that may use this console. Ask who administers your account."
NOT_DONE = "Single sign-on did not work. Try again; if it goes on, tell the person who administers your account."


class Refused(Exception):
    """The provider's user does not get in. The message is a sentence for them."""


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
            provider_id=settings.OIDC_ISSUER,  # `sub` is unique within it
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
        logger.warning("Single sign-on: %s", _words(exception, request))
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


def _words(wrong: Exception | None, request: HttpRequest) -> str:
    """The reason for the log. Messages of other exceptions may contain what the provider sent."""
    if wrong is None:
        return f"the provider says {request.GET.get('error', 'nothing')[:50]!r}."
    return str(wrong) if isinstance(wrong, oidc.NotBelieved) else type(wrong).__name__


def _refuse(request: HttpRequest, state: dict[str, Any], why: str) -> NoReturn:
    raise ImmediateHttpResponse(to_sign_in(request, why, state.get("next")))


def to_sign_in(request: HttpRequest, why: str, back: str | None) -> HttpResponse:
    messages.error(request, why)
    return redirect_to_login(back or reverse("admin:index"), reverse("admin:login"))


# --- Who gets in --------------------------------------------------------------------------------


def admit(claims: dict[str, Any]) -> SocialAccount:
    """The account of the provider's user, with the provider's groups. Raises Refused."""
    given = _groups_of(claims)
    try:
        account = _account(claims, may_begin=bool(given))
    except IntegrityError:  # the user's first sign-in, twice at once
        account = _account(claims, may_begin=bool(given))
    user = account.user
    if _is_never_theirs(user) or not (user.is_active and user.is_staff):
        raise Refused("Your account cannot sign in by single sign-on. Ask the person who administers it.")
    if not _set_groups(user, given):
        raise Refused(NO_GROUP)
    return account


def _is_never_theirs(user: User) -> bool:
    """Whether no provider signs the user in: one that was broken into must not own these accounts."""
    return user.is_superuser or user.username in settings.OIDC_BREAK_GLASS


def _groups_of(claims: dict[str, Any]) -> set[str]:
    """The names of our groups that match the provider's."""
    told = claims.get("groups")
    theirs = told if isinstance(told, list) else [told]
    return {settings.OIDC_GROUPS[each] for each in theirs if isinstance(each, str) and each in settings.OIDC_GROUPS}


@transaction.atomic
def _account(claims: dict[str, Any], *, may_begin: bool) -> SocialAccount:
    accounts = SocialAccount.objects.select_related("user")
    found = accounts.filter(provider=settings.OIDC_ISSUER, uid=claims["sub"]).first()
    return found or _first_account(claims, may_begin=may_begin)


def _first_account(claims: dict[str, Any], *, may_begin: bool) -> SocialAccount:
    """The account at a first sign-in: linked once to the user of that name, or to a new user."""
    if not may_begin:
        raise Refused(NO_GROUP)
    new = User(username=User.normalize_username(str(claims.get("preferred_username") or "")), is_staff=True)
    new.email, new.first_name, new.last_name = (
        str(claims.get(name) or "")[:most] for name, most in (("email", 254), ("given_name", 150), ("family_name", 150))
    )
    new.set_unusable_password()
    user = User.objects.select_for_update().filter(username=new.username).first()
    may_be_linked = user and user.is_active and user.is_staff and not SocialAccount.objects.filter(user=user).exists()
    if (user and not may_be_linked) or _is_never_theirs(user or new):
        raise Refused("Your user name is another account's here. Ask the person who administers your account.")
    if user is None:
        try:
            new.full_clean(validate_unique=False)
        except ValidationError:
            raise Refused("Single sign-on gives you a user name that cannot be one here.") from None
        new.save()
    record(user or new, "Linked to single sign-on, by user name." if user else "Made by single sign-on.")
    return SocialAccount.objects.create(user=user or new, provider=settings.OIDC_ISSUER, uid=claims["sub"])


@transaction.atomic
def _set_groups(user: User, given: set[str]) -> set[str]:
    """Of the groups in OIDC_GROUPS, put the user in exactly the given ones, and return these. Leaves others alone."""
    ours = Group.objects.filter(name__in=settings.OIDC_GROUPS.values())
    before = set(ours.filter(user=user).values_list("name", flat=True))
    found = set(ours.filter(name__in=given).values_list("name", flat=True))
    if missing := given - found:
        logger.error("OIDC_GROUPS names groups that do not exist: %s", ", ".join(sorted(missing)))
    user.groups.add(*ours.filter(name__in=found - before))
    user.groups.remove(*ours.filter(name__in=before - found))
    changes = [f"+{name}" for name in sorted(found - before)] + [f"-{name}" for name in sorted(before - found)]
    if changes:
        record(user, f"Groups by single sign-on: {', '.join(changes)}.")
    return found


def remember(request: HttpRequest, login: SocialLogin) -> None:
    """Store the provider's name for a session that began by single sign-on, so that the provider can end it."""
    now = time()
    request.session[CONFIRMED] = now - min(now, _age_of_sign_in(login.claims))
    request.session[KEY] = {"sub": login.claims["sub"], "asked": now, "answered": now, "unanswered": 0}
    data = {"iss": settings.OIDC_ISSUER, "sub": login.claims["sub"], "sid": login.claims.get("sid")}
    UserSession.objects.filter(session_key=request.session.session_key).update(data=data)


def connect() -> None:
    user_logged_out.connect(_forget, dispatch_uid="staff.single_sign_on")


def _forget(sender: Any, request: HttpRequest, **kwargs: Any) -> None:
    UserSession.objects.filter(session_key=request.session.session_key).delete()


# --- Whether they are still in ------------------------------------------------------------------


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
            logger.warning("Single sign-on: %s", _words(wrong, request))
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
        sub, sid = claims.get("sub"), claims.get("sid")
        once = f"oidc:{salted_hmac(__name__, str(claims['jti']), algorithm='sha256').hexdigest()}"
        if not (sub or sid) or not cache.add(once, "y", claims["exp"] - time() + 2 * oidc.LEEWAY):
            raise oidc.NotBelieved("The token ends nothing, or was sent before.")
    except (OAuth2Error, RequestException) as wrong:
        logger.warning("Single sign-on: %s", _words(wrong, request))
        return JsonResponse({"error": "invalid_request"}, status=400)
    ended = UserSession.objects.filter(data__iss=settings.OIDC_ISSUER)
    if sub:
        ended = ended.filter(data__sub=sub)
    if sid:
        ended = ended.filter(data__sid=sid)
    for session in ended:
        session.end()
    return HttpResponse()


# --- Passwords ----------------------------------------------------------------------------------


def tell_of_password(user: User, address: str | None) -> None:
    """Log an alert that a password was used despite single sign-on. The audit has it, too."""
    logger.critical("Break-glass: %s has signed in with a password, from %s.", user.username, address)
    record(user, "Signed in with a password, as a break-glass account.")


# --- Pages --------------------------------------------------------------------------------------


@never_cache
@require_GET
def start(request: HttpRequest) -> HttpResponse:
    """Go to the provider, and back. By a link, because `form-action 'self'` blocks forms that lead elsewhere."""
    if not settings.OIDC_ISSUER:
        raise Http404
    # If its session is older than ours may get, the provider has to ask the user again.
    back = request.GET.get("next")
    back = back if back and account_adapter().is_safe_url(back) else reverse("admin:index")
    try:
        return ask(request, SIGN_IN, back, max_age=settings.SESSION_COOKIE_AGE)
    except (OAuth2Error, RequestException) as wrong:
        logger.warning("Single sign-on: %s", _words(wrong, request))
        return to_sign_in(request, DOWN, back)


def ask(request: HttpRequest, purpose: str, back: str, **parameters: Any) -> HttpResponse:
    """Redirect to the provider. `back` is our own address. Raises as `oidc.document` if the provider is away."""
    oidc.document()  # otherwise the browser would wait for a host that is down
    data = {"for": purpose, "at": time(), "nonce": token_urlsafe(24)}
    provider = Adapter().get_provider(request, settings.OIDC_ISSUER)
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
    answer: HttpResponse = OAuth2CallbackView.adapter_view(Endpoints(request, settings.OIDC_ISSUER))(request)
    return answer
