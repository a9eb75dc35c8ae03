"""The intake's entry: submissions and health, nothing else. `gunicorn config.intake`, an ASGI application."""

import os
from typing import Any

import django
from django.core.handlers.exception import convert_exception_to_response
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


class IntakeRequest(WSGIRequest):
    urlconf = "config.urls_intake"  # instead of ROOT_URLCONF


class IntakeHandler(WSGIHandler):
    """Django's handler without any middleware: sessions, messages, CSRF and static files are for people with browsers.

    The intake has no settings of its own: they would hold for the whole process, and be lost where
    DJANGO_SETTINGS_MODULE is set.
    """

    request_class = IntakeRequest

    def load_middleware(self, is_async: bool = False) -> None:
        self._view_middleware: list[Any] = []
        self._template_response_middleware: list[Any] = []
        self._exception_middleware: list[Any] = []
        self._middleware_chain = convert_exception_to_response(self._get_response)  # type: ignore[attr-defined]


django.setup(set_prefix=False)

from workflows.api.asgi import Intake  # noqa: E402 (needs the settings)
from workflows.intake.submissions import submission_definition  # noqa: E402
from workflows.postgres import session_settings  # noqa: E402

session_settings.limit_idle_transactions()

# A wrong setting stops the process at its start, not every request.
application = Intake(submission_definition(), IntakeHandler())
