"""Who gets in: the throttle of sign-ins (django-axes, through its hooks), and what is recorded.

The settings AXES_HANDLER, AXES_USERNAME_CALLABLE and so on name these functions. docs/adr/0015 says why.
"""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from allauth.usersessions.models import UserSession
from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm, AdminPasswordChangeForm
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_login_failed
from django.contrib.auth.views import PasswordChangeView
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import salted_hmac
from django.views.decorators.debug import sensitive_variables

# People in an office share an address: it may have four times as many failures as one account.
FAILURES_OF_ADDRESS = 4

# After a sign-in the address counts as known for the account for so long.
ADDRESS_KNOWN_FOR = timedelta(days=30)


class SignInForm(AdminAuthenticationForm):
    """The admin's form. It says when sign-ins are refused, and counts a user who may not get in as a failure.

    Otherwise the throttle would miss the guess that finds such a user's password. They see the same message as for a
    wrong password. The error is beside the password, which has to be typed again anyway.
    """

    def get_invalid_login_error(self) -> ValidationError:
        return ValidationError({"password": _refusal(self.request) or super().get_invalid_login_error()})

    def confirm_login_allowed(self, user: User) -> None:
        try:
            super().confirm_login_allowed(user)
            if not may_use_password(user):
                raise ValidationError("")
        except ValidationError:
            credentials = {"username": user.get_username()}
            user_login_failed.send(sender=__name__, credentials=credentials, request=self.request)
            raise self.get_invalid_login_error() from None


class OwnPasswordForm(AdminPasswordChangeForm):
    """The admin's form for one's own password. A wrong old password counts as a failed sign-in.

    Otherwise somebody at an open session could guess its password without limit.
    """

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request

    @sensitive_variables("old_password")
    def clean_old_password(self) -> str:
        wrong = ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return check_own_password(self.request, self.user, self.cleaned_data["old_password"], wrong)


@sensitive_variables("password")
def check_own_password(request: HttpRequest, user: User, password: str, wrong: ValidationError) -> str:
    """Return the password if it is the user's. Raises `wrong`, or the refusal after too many failures."""
    if authenticate(request, username=user.get_username(), password=password) is None:
        raise _refusal(request) or wrong
    return password


class OwnPasswordView(PasswordChangeView):
    form_class = OwnPasswordForm

    def get_form_kwargs(self) -> dict[str, Any]:
        return super().get_form_kwargs() | {"request": self.request}


def may_use_password(user: User) -> bool:
    """With single sign-on only the named accounts may, for a day on which the provider is down."""
    return not settings.OIDC_ISSUER or user.username in settings.OIDC_BREAK_GLASS


def _refusal(request: HttpRequest | None) -> ValidationError | None:
    """The message for a request that was refused because of earlier failures; None for others."""
    if not getattr(request, "axes_locked_out", False):
        return None
    return ValidationError(
        "There were too many wrong passwords for this user name, or from this address. Wait %(minutes)s minutes, "
        "then try again; until then the right one is refused, too. If you cannot wait, or if this was not you, ask "
        "the person who administers your account.",
        code="too_many",
        params={"minutes": round(settings.AXES_COOLOFF_TIME.total_seconds() / 60)},
    )


def refuse(request: HttpRequest, response: HttpResponse, credentials: dict[str, Any] | None) -> HttpResponse:
    """Answer a throttled request with one of the forms above."""
    response.status_code = 429
    response.headers["Retry-After"] = str(round(settings.AXES_COOLOFF_TIME.total_seconds()))
    return response


# --- What is counted together -------------------------------------------------------------------


def name_of(request: HttpRequest, credentials: dict[str, Any] | None = None) -> str:
    """The named user. Text that is no user's name may be a password, so only its keyed hash is used."""
    typed = str((credentials or {}).get("username") or request.POST.get("username", ""))
    if User.objects.filter(username=typed).exists():
        return typed
    return f"unknown:{salted_hmac('staff.sign_in', typed, algorithm='sha256').hexdigest()[:16]}"


def address_of(request: HttpRequest) -> str | None:
    """The address of a request; None if it is unknown, which counts as one address.

    Behind a proxy it is the last one in CLIENT_ADDRESS_HEADER, which our own proxy has written; a client can invent
    those before it. For IPv6 it is the /64, within which a client chooses its address.
    """
    name = settings.CLIENT_ADDRESS_HEADER
    told = request.headers.get(name, "") if name else request.META.get("REMOTE_ADDR", "")
    try:
        address = ip_address(told.rpartition(",")[2].strip())
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or ip_network((address, 64), strict=False).network_address
    return str(address)


def counted_by(request: HttpRequest, credentials: dict[str, Any] | None = None) -> list[str | list[str]]:
    """What failures are counted by, the address last.

    They count for the account and for the address. From an address where the account has signed in lately they count
    separately, so that a guesser elsewhere does not lock out the owner.
    """
    since = timezone.now() - ADDRESS_KNOWN_FOR
    address = address_of(request)
    known = AccessLog.objects.filter(
        username=name_of(request, credentials), ip_address=address, attempt_time__gte=since
    ).exists()
    return [["username", "ip_address"] if address and known else "username", "ip_address"]


def described(name: str, address: str | None, agent: str, path: str, request: HttpRequest) -> str:
    """A sign-in in words, for log lines."""
    return f"{name} from {address or 'an unknown address'}"


class Throttle(AxesDatabaseHandler):  # type: ignore[misc]
    """Counts the failures of the last minutes in the database, so that all processes share the count."""

    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """The account's failures, or a quarter of the address's, whichever is more."""
        account, address = (
            attempts.aggregate(failures=Sum("failures_since_start"))["failures"] or 0
            for attempts in self.get_user_attempts(request, credentials)
        )
        return int(max(account, address // FAILURES_OF_ADDRESS))

    def reset_user_attempts(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        """Forget only this account's failures from this address.

        Axes forgets all of the address: signing in to one's own account would allow more guesses at others.
        """
        forgotten = AccessAttempt.objects.filter(username=name_of(request, credentials), ip_address=address_of(request))
        return int(forgotten.delete()[0])

    def user_logged_in(self, sender: Any, request: HttpRequest, user: User, **kwargs: Any) -> None:
        super().user_logged_in(sender, request, user, **kwargs)
        prune()

    def remove_out_of_limit_failure_logs(self, *, username: str, limit: int | None = None) -> int:
        """Keep all until `prune`: axes would keep a thousand per user, and drop the newest."""
        return 0


def prune() -> None:
    """Delete old records of sign-ins, expired sessions, and used codes that no longer count."""
    now = timezone.now()
    for model in (AccessLog, AccessFailureLog):
        model.objects.filter(attempt_time__lt=now - timedelta(days=settings.SIGN_INS_KEPT_DAYS)).delete()
    Session.objects.filter(expire_date__lt=now).delete()
    UserSession.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()
    with connection.cursor() as cursor:  # the cache deletes nothing before it is full
        cursor.execute("DELETE FROM staff_cache WHERE expires < now()")
