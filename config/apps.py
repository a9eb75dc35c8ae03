from django.conf import settings

from config import logs
from staff import console


class ConsoleConfig(console.ConsoleConfig):
    """The console. Outside DEBUG it also sets up our own log."""

    def ready(self) -> None:
        super().ready()
        if not settings.DEBUG:
            logs.take_over()
