from django.apps import AppConfig
from django.core import checks


class WorkflowsConfig(AppConfig):
    name = "workflows"

    def ready(self) -> None:
        from workflows.checks import check_definitions, check_submission_workflow, check_undeclared_steps

        checks.register(check_definitions)
        checks.register(check_submission_workflow)
        checks.register(check_undeclared_steps, checks.Tags.database)
