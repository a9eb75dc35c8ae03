"""How a second factor is enrolled: by a link that works once, after the password. A password alone is not enough."""

from __future__ import annotations

from base64 import b32encode
from datetime import timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from allauth.account.internal.decorators import login_stage_required
from allauth.account.internal.flows.login import record_authentication
from allauth.account.internal.stagekit import clear_login, stash_login
from allauth.account.stages import LoginStage
from allauth.mfa.adapter import get_adapter as factor_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import TOTP
from allauth.mfa.utils import is_mfa_enabled
from allauth.mfa.webauthn.forms import AddWebAuthnForm
from allauth.mfa.webauthn.internal.auth import WebAuthn, begin_registration
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from staff.models import EnrolmentLink
from staff.records import record
from staff.second_factor import a_passkey

# A link from the evening still works the next day.
LINK_LASTS = timedelta(hours=24)

# The session's key for the token of its link.
KEY = "enrolment"

# Users with one of these permissions need a second factor: they move money or make others move it, see health data in
# clear, or administer such users.
SENSITIVE = {
    *("workflows.cancel_paid_workflow", "workflows.correct_workflow", "workflows.resolve_manualtask"),
    *("workflows.decide_manualtask", "workflows.reveal_workflow", "workflows.erase_workflow"),
    "workflows.let_fail_service",
    *("auth.add_user", "auth.change_user", "auth.change_group"),
}

FACTORS = [Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN]

NEEDED = (
    "Your account needs a second factor. Ask the person who administers it for a link to set one up. If that is you, "
    "`manage.py createfactorlink` makes one."
)
NO_LINK = "The link is over, or was used. Ask the person who administers your account for another."


def needs_factor(user: User) -> bool:
    if settings.OIDC_ISSUER:
        return True  # a break-glass account: only these have a password then
    return settings.SECOND_FACTOR_REQUIRED and not SENSITIVE.isdisjoint(user.get_all_permissions())


def lacks_factor(user: User) -> bool:
    return needs_factor(user) and not is_mfa_enabled(user, FACTORS)


# --- Links --------------------------------------------------------------------------------------


@transaction.atomic
def new_link(user: User, *, by: User | None, lost: bool = False) -> str:
    """The path of a new link; older ones stop working. `lost`: the user's factors are removed, and their sessions end.

    `by` is the administrator, or None for a command.
    """
    token = token_urlsafe(32)
    EnrolmentLink.objects.filter(user=user).delete()
    EnrolmentLink.objects.create(user=user, digest=_digest(token))
    if lost:
        Authenticator.objects.filter(user=user).delete()
        for session in UserSession.objects.filter(user=user):
            session.end()
    what = "Second factors removed, and a link made to enrol one" if lost else "A link made to enrol a second factor"
    record(user, f"{what}{'' if by else ', by a command'}.", by=by)
    return reverse("second_factor_link", args=[token])


def _digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _link_of(request: HttpRequest, user: User) -> EnrolmentLink | None:
    """The link that was opened in this session, if it is this user's and still works."""
    since = timezone.now() - LINK_LASTS
    links = EnrolmentLink.objects.filter(user=user, made_at__gte=since)
    return links.filter(digest=_digest(request.session.get(KEY, ""))).first()


@never_cache
@require_GET
def open_link(request: HttpRequest, token: str) -> HttpResponse:
    """Remember the link, and redirect to the sign-in: it counts after its user's password."""
    since = timezone.now() - LINK_LASTS
    if not EnrolmentLink.objects.filter(digest=_digest(token), made_at__gte=since).exists():
        messages.error(request, NO_LINK)
    else:
        logout(request)
        request.session[KEY] = token
        messages.info(request, "Sign in with your password. Then you set up your second factor.")
    return HttpResponseRedirect(reverse("admin:login"))


# --- After the password -------------------------------------------------------------------------


class EnrolStage(LoginStage):  # type: ignore[misc]
    """A user who needs a factor cannot get in without one. A user who has opened a link enrols one first."""

    key = "enrol"
    urlname = "second_factor_enrol"

    def handle(self) -> tuple[HttpResponse | None, bool]:
        user = self.login.user
        if "sociallogin" in (self.login.signal_kwargs or {}):
            return None, True
        if _link_of(self.request, user):
            return HttpResponseRedirect(reverse(self.urlname)), True
        if not lacks_factor(user):
            return None, True
        clear_login(self.request)
        messages.error(self.request, NEEDED)
        return HttpResponseRedirect(reverse("admin:login")), False


def _secret(token: str) -> str:
    """The secret of an app's codes before it is enrolled: derived from the link, so that no session stores it."""
    return b32encode(salted_hmac(__name__, token, algorithm="sha256").digest()[:20]).decode()


class CodeForm(ActivateTOTPForm):  # type: ignore[misc]
    """allauth's, with the link's secret instead of one in the session."""

    def __init__(self, *args: Any, secret: str, user: User, **kwargs: Any) -> None:
        super(ActivateTOTPForm, self).__init__(*args, **kwargs)
        self.user, self.secret = user, secret


class PasskeyForm(AddWebAuthnForm):  # type: ignore[misc]
    def clean(self) -> dict[str, Any]:
        with a_passkey():
            return dict(super().clean())


in_stage = method_decorator(login_stage_required(stage=EnrolStage.key, redirect_urlname="account_login"), "dispatch")


@in_stage
class EnrolView(View):
    """Offers an app's code and a passkey. After an enrolment it shows the recovery codes, and then signs in."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        self.stage = request._login_stage  # type: ignore[attr-defined]
        self.user: User = self.stage.login.user
        # The enrolled factor may have been removed meanwhile, as a lost one.
        self.enrolled = Authenticator.objects.filter(user=self.user, pk=self.stage.state.get("enrolled")).exists()
        if not self.enrolled and _link_of(request, self.user) is None:
            clear_login(request)
            messages.error(request, NO_LINK)
            return HttpResponseRedirect(reverse("admin:login"))
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request)

    def post(self, request: HttpRequest) -> HttpResponse:
        if self.enrolled:
            request.session.pop(KEY, None)
            answer: HttpResponse = self.stage.exit()
            return answer
        secret = _secret(request.session[KEY])
        if "credential" in request.POST:
            passkey = PasskeyForm(request.POST, user=self.user)
            if passkey.is_valid():
                name, credential = passkey.cleaned_data["name"], passkey.cleaned_data["credential"]
                return self._enrol(request, lambda: WebAuthn.add(self.user, name, credential), "a passkey")
            return self._page(request, passkey=passkey)
        form = CodeForm(request.POST, user=self.user, secret=secret)
        if form.is_valid():
            return self._enrol(request, lambda: self._app(secret, form.cleaned_data["code"]), "an app")
        return self._page(request, form=form)

    @transaction.atomic
    def _enrol(self, request: HttpRequest, add: Any, what: str) -> HttpResponse:
        link = _link_of(request, self.user)
        if link is None or not EnrolmentLink.objects.filter(pk=link.pk).delete()[0]:  # used elsewhere meanwhile
            return HttpResponseRedirect(reverse("admin:login"))
        if what == "an app":
            Authenticator.objects.filter(user=self.user, type=Authenticator.Type.TOTP).delete()
        added = add().instance
        RecoveryCodes.activate(self.user)
        record(self.user, f"Second factor enrolled: {what}.")
        record_authentication(request, self.user, "mfa", id=added.pk, type=added.type)
        self.stage.state["enrolled"] = added.pk
        stash_login(request, self.stage.login)
        return HttpResponseRedirect(request.path)

    def _app(self, secret: str, code: str) -> TOTP:
        app = TOTP.activate(self.user, secret)
        app.validate_code(code)  # so it does not count again
        return app

    def _page(self, request: HttpRequest, *, form: Any = None, passkey: Any = None) -> HttpResponse:
        context = {**admin.site.each_context(request), "title": "Your second factor", "has_permission": False}
        if self.enrolled:
            codes = Authenticator.objects.get(user=self.user, type=Authenticator.Type.RECOVERY_CODES).wrap()
            return render(request, "staff/recovery_codes.html", {**context, "codes": codes.get_unused_codes()})
        secret = _secret(request.session[KEY])
        context |= {
            "form": form or CodeForm(user=self.user, secret=secret),
            "secret": secret,
            "passkey": passkey,
            "options": begin_registration(self.user, passwordless=False),
        }
        return render(request, "staff/enrol.html", context)


@in_stage
class PictureView(View):
    """The secret as a picture for an app. allauth's is a `data:` address, which our policy blocks."""

    def get(self, request: HttpRequest) -> HttpResponse:
        user = request._login_stage.login.user  # type: ignore[attr-defined]
        if _link_of(request, user) is None:
            return HttpResponse(status=404)
        adapter = factor_adapter()
        url = adapter.build_totp_url(user, _secret(request.session[KEY]))
        return HttpResponse(adapter.build_totp_svg(url), content_type="image/svg+xml")
