from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """Django's admin as the operations console, with our way in. It stands in INSTALLED_APPS in place of the admin."""

    default_site = "staff.site.StaffSite"
