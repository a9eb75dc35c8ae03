"""Before an action that weighs users confirm their identity, unless they did so in the last ten minutes.

It happens before the form opens. A form that is sent too late is not stored: the user has to send it again.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any

from allauth.account.adapter import get_adapter as account_adapter
from allauth.mfa.base.forms import ReauthenticateForm
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import is_mfa_enabled
from allauth.mfa.webauthn.forms import ReauthenticateWebAuthnForm
from allauth.mfa.webauthn.internal.auth import begin_authentication
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from django import forms
from django.contrib import admin, messages
from django.contrib.auth import logout
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods
from requests import RequestException

from staff import single_sign_on
from staff.enrolment import FACTORS, NEEDED, lacks_factor
from staff.second_factor import a_passkey
from staff.sessions import CONFIRMED, NOTHING_DONE, page_of
from staff.sign_in import check_own_password
from workflows.models import BulkOperation

# Seconds for which a confirmation counts: a patient's call, with the work during it.
LASTS = 10 * 60

Asked = Callable[[HttpRequest, dict[str, Any]], bool]


def _always(request: HttpRequest, arguments: dict[str, Any]) -> bool:
    return True


def _may_cancel_charged(request: HttpRequest, arguments: dict[str, Any]) -> bool:
    """Whether the user may cancel a charged workflow. A charge while the form is open counts, too."""
    return request.user.has_perm("workflows.cancel_paid_workflow")


def _has_factor(request: HttpRequest, arguments: dict[str, Any]) -> bool:
    """Whether the user's password is only one of two factors. Its page asks all others for it."""
    return bool(is_mfa_enabled(request.user, FACTORS))


def _cancels(request: HttpRequest, arguments: dict[str, Any]) -> bool:
    row_id = str(arguments.get("row_id", ""))
    verb = BulkOperation.objects.filter(pk=row_id).values_list("verb", flat=True) if row_id.isdecimal() else []
    return _may_cancel_charged(request, arguments) and "cancel" in verb


# The console's pages that ask first, by name.
ASK_FIRST: dict[str, Asked] = {
    "admin:workflows_workflow_reveal": _always,
    "admin:workflows_workflow_cancel": _may_cancel_charged,
    "admin:workflows_workflow_ask_erasure": _always,
    "admin:workflows_workflow_approve_correction": _always,
    "admin:workflows_erasure_approve": _always,
    "admin:workflows_proposal_approve": _always,
    "admin:workflows_bulkoperation_approve": _always,
    "admin:workflows_bulkoperation_start": _cancels,
    "admin:workflows_manualtask_decide": _always,
    "admin:workflows_manualtask_confirm": _always,
    "admin:workflows_workflow_confirm_retry": _always,
    "admin:workflows_service_let_fail": _always,
    # Otherwise somebody at an administrator's open session could give their own account all these rights.
    "admin:auth_user_add": _always,
    "admin:auth_user_change": _always,
    "admin:auth_user_password_change": _always,
    "admin:auth_user_second_factor": _always,
    "admin:auth_group_change": _always,
    "admin:sessions": _always,
    "admin:password_change": _has_factor,
}


class AskFirst:
    """Redirects to `confirm`, and back afterwards, where a page asks first."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponse | None:
        asked = ASK_FIRST.get(request.resolver_match.view_name) if request.resolver_match else None
        if asked is None or not request.user.is_authenticated or not asked(request, kwargs):
            return None
        if single_sign_on.KEY not in request.session and lacks_factor(request.user):
            logout(request)  # they have gained rights since they signed in, or signed in before an upgrade
            messages.error(request, NEEDED)
            return HttpResponseRedirect(reverse("admin:login"))
        if is_fresh(request):
            return None
        back = request.get_full_path()
        if request.method != "GET":
            messages.warning(request, f"Confirm first that it is you. {NOTHING_DONE}")
            back = page_of(request)
        return HttpResponseRedirect(f"{reverse('step_up')}?{urlencode({'next': back})}")


def is_fresh(request: HttpRequest) -> bool:
    return bool(0 <= time() - request.session.get(CONFIRMED, 0) < LASTS)


# --- The page -----------------------------------------------------------------------------------


class CodeForm(ReauthenticateForm):  # type: ignore[misc]
    """An app's code, or a recovery code. A wrong one counts like a wrong password."""


class PasskeyForm(ReauthenticateWebAuthnForm):  # type: ignore[misc]
    def clean_credential(self) -> Authenticator:
        with a_passkey():
            return super().clean_credential()


class PasswordForm(forms.Form):
    """For users without a second factor. A wrong password counts, as at the sign-in."""

    password = forms.CharField(widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}))

    def __init__(self, *args: Any, user: User, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.user, self.request = user, request

    def clean_password(self) -> str:
        wrong = ValidationError("That is not your password.")
        return check_own_password(self.request, self.user, self.cleaned_data["password"], wrong)


@never_cache
@require_http_methods(["GET", "POST"])
def confirm(request: HttpRequest) -> HttpResponse:
    """Ask for the user's second factor, or their password if they have none, or let their provider ask."""
    back = request.GET.get("next", "")
    back = back if account_adapter().is_safe_url(back) else reverse("admin:index")
    user = request.user
    if not isinstance(user, User) or not user.is_staff:
        return HttpResponseRedirect(reverse("admin:login"))
    if single_sign_on.KEY in request.session:
        return _by_provider(request, back)
    form, passkey = _forms(request, user)
    for each in (form, passkey):
        if each is not None and each.is_bound and each.is_valid():
            if hasattr(each, "save"):
                each.save()
            request.session[CONFIRMED] = time()
            return HttpResponseRedirect(back)
    context = {**admin.site.each_context(request), "title": "Confirm that it is you", "form": form, "passkey": passkey}
    if passkey is not None:
        context["options"] = begin_authentication(user)
    return render(request, "staff/step_up.html", context)


def _forms(request: HttpRequest, user: User) -> tuple[forms.Form, forms.Form | None]:
    """The form for a code or password, and that for a passkey if the user has one. The sent one is bound."""
    types = set(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    sent = request.POST or None
    if not types & {Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN}:
        return PasswordForm(sent, user=user, request=request), None
    is_passkey = "credential" in request.POST
    passkey = PasskeyForm(sent if is_passkey else None, user=user) if Authenticator.Type.WEBAUTHN in types else None
    return CodeForm(None if is_passkey else sent, user=user), passkey


def _by_provider(request: HttpRequest, back: str) -> HttpResponse:
    try:
        answer = single_sign_on.ask(request, single_sign_on.STEP_UP, back, prompt="login", max_age=0)
        return single_sign_on.onward(request, answer)
    except (OAuth2Error, RequestException):
        messages.error(request, single_sign_on.DOWN)
        return HttpResponseRedirect(reverse("admin:index"))
