from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.checks import CheckMessage, Error, Warning

from workflows.console.site import ConsoleSite


def check_site(**kwargs: Any) -> Iterator[CheckMessage]:
    """The admin is the console, and shows its templates."""
    if not isinstance(admin.site, ConsoleSite):
        yield Error(
            "The admin's site is not the console's, which the pages of the console need.",
            hint="In INSTALLED_APPS write 'workflows' before 'django.contrib.admin'. A site of your own is a subclass "
            "of workflows.console.site.ConsoleSite.",
            id="workflows.E032",
        )
    labels = [each.label for each in apps.get_app_configs()]
    if labels.index("workflows") > labels.index("admin"):
        yield Warning(
            "The admin stands before 'workflows' in INSTALLED_APPS: its own templates win over those of the console.",
            hint="Move 'workflows' before it.",
            id="workflows.W034",
        )
