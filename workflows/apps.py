from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.db.backends.signals import connection_created

from workflows import defaults


def _require_apps() -> None:
    """Without these no module of ours, or of the admin, can be imported."""
    for name in ("django.contrib.auth", "django.contrib.contenttypes", "django.contrib.admin"):
        if not apps.is_installed(name):
            raise ImproperlyConfigured(f"INSTALLED_APPS lacks {name!r}: add it, after 'workflows'.")


def _make_the_admin_the_console() -> None:
    """Unless the project's own AdminConfig names a site. The admin makes its site when it is ready, after this."""
    from django.contrib.admin.apps import SimpleAdminConfig  # here, or Django takes it for a config of ours

    admin = apps.get_app_config("admin")
    if isinstance(admin, SimpleAdminConfig) and admin.default_site == SimpleAdminConfig.default_site:
        admin.default_site = "workflows.console.site.ConsoleSite"


class WorkflowsConfig(AppConfig):
    name = "workflows"

    def __init__(self, app_name: str, app_module: Any) -> None:
        super().__init__(app_name, app_module)
        if not hasattr(app_module, "DISTRIBUTION"):
            raise ImproperlyConfigured(
                f"The package 'workflows' in {app_module.__file__} is not that of django-onramp: llama-index-workflows "
                "has the same name, and an environment takes one of the two."
            )
        defaults.fill_in(defaults.DEFAULTS)
        defaults.add_attempt_log()

    def import_models(self) -> None:
        _require_apps()
        super().import_models()

    def ready(self) -> None:
        _make_the_admin_the_console()
        from workflows import checks, checks_of_people, checks_of_settings
        from workflows.console import checks as console
        from workflows.extension import installed
        from workflows.postgres import session_settings

        connection_created.connect(session_settings.tell)
        register(checks_of_settings.check_database)
        register(checks_of_settings.check_hosts)
        register(console.check_site)
        register(console.check_way_in)
        register(checks_of_settings.check_named_definitions)
        register(checks_of_settings.check_users)
        register(checks_of_settings.check_sealing)
        register(checks.check_definitions)
        register(checks.check_options)
        register(checks.check_submission_workflow)
        register(checks.check_signal_sources)
        register(checks.check_wording)
        register(checks.check_series)
        register(checks_of_settings.check_database_is_verified, deploy=True)
        register(checks.check_search_keys, deploy=True)
        register(checks.check_data_keys, deploy=True)
        register(checks.check_undeclared_steps, Tags.database)
        register(checks.check_codes_have_words, Tags.database)
        register(checks.check_teams, Tags.database)
        register(checks_of_people.check_two_people, Tags.database)
        register(checks_of_people.check_deciders, Tags.database)
        register(checks.check_sources_have_secrets, Tags.database)
        register(checks.check_server_log, Tags.database)
        for extension in installed():
            for check in extension.checks:
                register(check)
            for check in extension.deploy_checks:
                register(check, deploy=True)
