"""The console as the project serves it: the engine's, with our way in."""

from __future__ import annotations

from typing import Any

from django.urls import path

from staff.sessions import session_view
from staff.sign_in import SignInForm
from workflows.console import ConsoleSite


class StaffSite(ConsoleSite):
    login_form = SignInForm

    def get_urls(self) -> list[Any]:
        return [path("session/", session_view, name="session"), *super().get_urls()]
