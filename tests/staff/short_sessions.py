"""The project's settings, with sessions that end after 12 seconds without activity; the page warns after two."""

from config.settings import *  # noqa: F403

SESSION_IDLE_SECONDS = 12
SESSION_WARNING_SECONDS = 10
