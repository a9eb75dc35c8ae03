from django.conf import settings

from config import logs
from staff import console


class ConsoleConfig(console.ConsoleConfig):
    """The console, and outside DEBUG a log of our own."""

    def ready(self) -> None:
        super().ready()
        if not settings.DEBUG:
            logs.take_over()
