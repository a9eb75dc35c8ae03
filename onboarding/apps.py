from django.apps import AppConfig
from django.core.checks import register


class OnboardingConfig(AppConfig):
    name = "onboarding"

    def ready(self) -> None:
        from onboarding import checks

        register(checks.check_services)
        register(checks.check_timeout)
