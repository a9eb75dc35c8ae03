"""The console as the project serves it: the engine's, with our way in."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from staff.sessions import session_view
from staff.sign_in import OwnPasswordView, SignInForm
from workflows.console.site import ConsoleSite


class StaffSite(ConsoleSite):
    login_form = SignInForm
    # The only page with the user's bar that Django lets a browser keep, for the next user to see.
    password_change_done = method_decorator(never_cache)(AdminSite.password_change_done)

    @method_decorator(never_cache)
    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The admin's page, with our form."""
        request.current_app = self.name
        return OwnPasswordView.as_view(
            success_url=reverse("admin:password_change_done", current_app=self.name),
            extra_context=self.each_context(request) | (extra_context or {}),
        )(request)

    def get_urls(self) -> list[Any]:
        return [path("session/", session_view, name="session"), *super().get_urls()]
