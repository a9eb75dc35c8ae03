from django.apps import AppConfig
from django.core import checks
from django.db.backends.signals import connection_created


class WorkflowsConfig(AppConfig):
    name = "workflows"

    def ready(self) -> None:
        from workflows.checks import (
            check_codes_have_words,
            check_definitions,
            check_search_keys,
            check_series,
            check_submission_workflow,
            check_undeclared_steps,
            check_wording,
        )
        from workflows.engine import maintenance
        from workflows.operations import bulk
        from workflows.postgres import session_settings

        connection_created.connect(session_settings.tell)
        maintenance.MAINTENANCE_TASKS.update(bulk.CHORES)
        checks.register(check_definitions)
        checks.register(check_submission_workflow)
        checks.register(check_wording)
        checks.register(check_series)
        checks.register(check_search_keys, deploy=True)
        checks.register(check_undeclared_steps, checks.Tags.database)
        checks.register(check_codes_have_words, checks.Tags.database)
