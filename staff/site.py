"""The console as the project serves it: the engine's, with our way in."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.urls import path
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from staff.sessions import session_view
from staff.sign_in import SignInForm
from workflows.console import ConsoleSite


class StaffSite(ConsoleSite):
    login_form = SignInForm
    # Django's are the only pages with the bar of whoever is signed in that a browser may keep.
    password_change = method_decorator(never_cache)(AdminSite.password_change)
    password_change_done = method_decorator(never_cache)(AdminSite.password_change_done)

    def get_urls(self) -> list[Any]:
        return [path("session/", session_view, name="session"), *super().get_urls()]
