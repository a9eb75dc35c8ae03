from django.apps import AppConfig
from django.core.checks import register


class OnboardingConfig(AppConfig):
    name = "onboarding"

    def ready(self) -> None:
        from onboarding import checks

        # `runworker` and `check --deploy` report these: a migration, or the intake, calls no service.
        register(checks.check_services, "workers", deploy=True)
        register(checks.check_timeout, "workers")
        register(checks.check_wording)
        register(checks.check_codes)
