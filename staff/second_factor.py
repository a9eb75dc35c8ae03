"""The second factor: allauth's, with our storage for its secrets, our page, and our count of failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authentication_failed
from allauth.mfa.stages import AuthenticateStage
from allauth.mfa.webauthn.forms import AuthenticateWebAuthnForm
from django.contrib import admin
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_login_failed
from django.contrib.auth.views import LoginView
from django.core.exceptions import ValidationError
from django.db.models.signals import post_delete
from django.http import HttpRequest, HttpResponse

from staff.models import FactorSecret
from workflows.sealing import key_register, whole
from workflows.sealing.envelopes import Unreadable

if TYPE_CHECKING:
    SignIn = LoginView[AuthenticationForm]
else:
    SignIn = LoginView


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Stores secrets, sealed, in rows of our own. An envelope opens only for its row."""

    def encrypt(self, text: str) -> str:
        """Store a secret; return its row's key, which allauth stores instead."""
        key_register.register()
        secret = FactorSecret()
        secret.sealed = whole.seal(secret, text)
        secret.save()
        return str(secret.key)

    def decrypt(self, encrypted_text: str) -> str:
        """The secret. Raises ValidationError, for the form, if it cannot be read."""
        secret = FactorSecret.objects.filter(key=UUID(encrypted_text)).first()
        try:
            if secret is not None:
                return str(whole.unseal(secret, secret.sealed))
        except Unreadable:
            pass
        raise ValidationError("Your second factor cannot be read. Tell the person who administers your account.")


def connect() -> None:
    authentication_failed.connect(_count, dispatch_uid="staff.second_factor")
    post_delete.connect(_forget, sender=Authenticator, dispatch_uid="staff.second_factor")


def _count(sender: Any, request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Count a wrong code like a wrong password: otherwise somebody with the password could guess codes for days."""
    user_login_failed.send(sender=__name__, credentials={"username": user.get_username()}, request=request)


def _forget(sender: Any, instance: Authenticator, **kwargs: Any) -> None:
    keys = [instance.data[name] for name in ("secret", "seed") if name in instance.data]
    FactorSecret.objects.filter(key__in=keys).delete()


class SignInView(SignIn):
    """The admin's sign-in. For a user with a second factor the right password only leads to `CodeView`."""

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        user = form.get_user()
        login = Login(user=user, redirect_url=self.get_success_url())
        answer: HttpResponse = perform_password_login(self.request, {"username": user.get_username()}, login)
        return answer


class CodeStage(AuthenticateStage):  # type: ignore[misc]
    """The stage after a password. The provider of single sign-on has its own second factor."""

    def _should_handle(self, request: HttpRequest) -> bool:
        by_provider = "sociallogin" in (self.login.signal_kwargs or {})
        return not by_provider and bool(super()._should_handle(request))


@contextmanager
def a_passkey() -> Iterator[None]:
    """Refuse, in a form, data that no browser sends for a passkey: the libraries raise various errors."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValidationError("That is no passkey of yours.") from None


class PasskeyForm(AuthenticateWebAuthnForm):  # type: ignore[misc]
    def clean_credential(self) -> Authenticator:
        with a_passkey():
            return super().clean_credential()


class CodeView(AuthenticateView):  # type: ignore[misc]
    """Asks for a code after the right password. Only then is the user signed in."""

    template_name = "staff/second_factor.html"
    webauthn_form_class = PasskeyForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        about = {"title": "Second factor", "has_permission": False}
        return {**super().get_context_data(**kwargs), **admin.site.each_context(self.request), **about}
