"""What allauth may do with accounts here: sign users in, in our stages (the setting ACCOUNT_ADAPTER)."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme

from staff.sign_in import address_of

# An entry of the list of sessions has an address in any case.
NO_ADDRESS = "0.0.0.0"  # noqa: S104 (nothing listens there)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Nobody signs up, no mail is sent, and no sign-in leads to another host."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """Sends nothing: allauth would tell users of their own changes."""

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Says nothing: allauth's messages name pages that are not mounted."""

    def get_client_ip(self, request: HttpRequest) -> str:
        return address_of(request) or NO_ADDRESS

    def is_safe_url(self, url: str | None) -> bool:
        """Whether it is of this host. allauth would allow every host of ALLOWED_HOSTS, too."""
        request = self.request
        return url_has_allowed_host_and_scheme(url, {request.get_host()}, require_https=request.is_secure())

    def get_login_stages(self) -> list[str]:
        return ["allauth.mfa.stages.AuthenticateStage"]
