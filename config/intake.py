"""The intake's entry point: only submissions and health. `gunicorn config.intake`, an ASGI application."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

django.setup(set_prefix=False)

from workflows.api.asgi import Intake  # noqa: E402 (needs the settings)
from workflows.intake.submissions import submission_definition  # noqa: E402
from workflows.postgres import session_settings  # noqa: E402

session_settings.limit_idle_transactions()

# A wrong setting stops the process at its start, not at each request.
application = Intake(submission_definition())
