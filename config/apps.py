from django.conf import settings
from django.contrib.admin.apps import AdminConfig

from config import logs


class ConsoleConfig(AdminConfig):
    """The operations console: Django's admin on a site of our own, with our way in."""

    default_site = "staff.site.StaffSite"

    def ready(self) -> None:
        super().ready()
        if not settings.DEBUG:
            logs.take_over()
