from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """Django's admin as the operations console. It stands in INSTALLED_APPS in place of `django.contrib.admin`."""

    default_site = "workflows.console.site.ConsoleSite"
