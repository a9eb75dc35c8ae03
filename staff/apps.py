from typing import Any

from django.apps import AppConfig
from django.core.checks import Tags, register
from django.utils.functional import cached_property

from staff.defaults import DEFAULTS
from workflows.defaults import fill_in
from workflows.extension import Extension


class StaffConfig(AppConfig):
    """The users of the console: how they sign in, for how long, and who may administer whom."""

    name = "staff"

    def __init__(self, app_name: str, app_module: Any) -> None:
        super().__init__(app_name, app_module)
        fill_in(DEFAULTS)

    @cached_property
    def extension(self) -> Extension:
        """What this app adds to the engine's pages, metrics and commands."""
        from staff.extension import StaffExtension  # needs the models

        return StaffExtension()

    def ready(self) -> None:
        from staff import checks, second_factor, sessions, single_sign_on
        from staff.models import FactorSecret
        from workflows.sealing import whole

        register(checks.proxy_tells_the_address, Tags.security, deploy=True)
        sessions.count_from_sign_in()
        second_factor.connect()
        single_sign_on.connect()
        whole.TABLES.append(whole.Table("second factor", FactorSecret, "sealed"))  # for `manage.py datakeys`
