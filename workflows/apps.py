from django.apps import AppConfig
from django.core.checks import Tags, register
from django.db.backends.signals import connection_created


class WorkflowsConfig(AppConfig):
    name = "workflows"

    def ready(self) -> None:
        from workflows import checks
        from workflows.extension import installed
        from workflows.postgres import session_settings

        connection_created.connect(session_settings.tell)
        register(checks.check_definitions)
        register(checks.check_options)
        register(checks.check_submission_workflow)
        register(checks.check_signal_sources)
        register(checks.check_wording)
        register(checks.check_series)
        register(checks.check_search_keys, deploy=True)
        register(checks.check_data_keys, deploy=True)
        register(checks.check_undeclared_steps, Tags.database)
        register(checks.check_codes_have_words, Tags.database)
        register(checks.check_teams, Tags.database)
        register(checks.check_sources_have_secrets, Tags.database)
        register(checks.check_server_log, Tags.database)
        for extension in installed():
            for check in extension.checks:
                register(check)
            for check in extension.deploy_checks:
                register(check, deploy=True)
