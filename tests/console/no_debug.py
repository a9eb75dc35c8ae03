"""The project's settings with its own error pages, for which DEBUG has Django's instead; else as with DEBUG."""

from config.settings import *  # noqa: F403

DEBUG = False
# The second wrong password is refused by the throttle.
AXES_FAILURE_LIMIT = 2
