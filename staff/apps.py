from django.apps import AppConfig
from django.core.checks import Tags, register


class StaffConfig(AppConfig):
    """The people of the console: how they sign in, for how long, and who may administer whom."""

    name = "staff"

    def ready(self) -> None:
        from staff import checks, sessions

        register(checks.proxy_tells_the_address, Tags.security, deploy=True)
        sessions.count_from_sign_in()
