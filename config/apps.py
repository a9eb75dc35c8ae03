from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """The operations console: Django's admin on a site of our own, with our way in."""

    default_site = "staff.site.StaffSite"
