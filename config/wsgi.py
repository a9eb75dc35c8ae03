"""The console's entry point: admin, API, health and metrics. `gunicorn config.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()

from workflows.postgres import session_settings  # noqa: E402 (needs the settings)

session_settings.limit_idle_transactions()
