from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """Django's admin as the operations console. INSTALLED_APPS lists it instead of `django.contrib.admin`."""

    default_site = "workflows.console.site.ConsoleSite"
