from django.apps import AppConfig


class StaffConfig(AppConfig):
    """The people of the console: how they sign in, for how long, and who may administer whom."""

    name = "staff"

    def ready(self) -> None:
        from staff import checks, sessions

        checks.register_all()
        sessions.count_from_sign_in()
