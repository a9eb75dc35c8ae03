"""What allauth may do with accounts here: sign users in, by our stages (the setting ACCOUNT_ADAPTER)."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils.http import url_has_allowed_host_and_scheme

from staff import admission, single_sign_on
from staff.sign_in import address_of

# The list of sessions needs an address for each.
NO_ADDRESS = "0.0.0.0"  # noqa: S104 (nothing listens there)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Nobody signs up, no mail is sent, and no sign-in leads to another host."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """Send nothing: allauth would mail users about their own changes."""

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Show nothing: allauth's messages name pages that do not exist here."""

    def get_client_ip(self, request: HttpRequest) -> str:
        return address_of(request) or NO_ADDRESS

    def is_safe_url(self, url: str | None) -> bool:
        """Whether the address is on this host. allauth would allow every host of ALLOWED_HOSTS."""
        request = self.request
        return url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())

    def get_login_stages(self) -> list[str]:
        return ["staff.second_factor.CodeStage", "staff.enrolment.EnrolStage"]

    def post_login(
        self, request: HttpRequest, user: User, *, signal_kwargs: dict[str, Any] | None, **kwargs: Any
    ) -> HttpResponse:
        answer: HttpResponse = super().post_login(request, user, signal_kwargs=signal_kwargs, **kwargs)
        if login := (signal_kwargs or {}).get("sociallogin"):
            single_sign_on.remember(request, login)
        elif settings.OIDC_ISSUER:
            admission.tell_of_password(user, address_of(request))
        return answer
