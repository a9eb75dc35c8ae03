from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """Django's admin as the operations console, with our sign-in. INSTALLED_APPS lists it instead of the admin."""

    default_site = "staff.site.StaffSite"
