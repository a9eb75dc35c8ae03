"""The console as the project serves it: the engine's, with our way in."""

from __future__ import annotations

from staff.sign_in import SignInForm
from workflows.console import ConsoleSite


class StaffSite(ConsoleSite):
    login_form = SignInForm
