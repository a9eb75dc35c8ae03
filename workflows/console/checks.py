from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.core.checks import CheckMessage, Error, Warning
from django.template import TemplateDoesNotExist
from django.template.loader import get_template
from django.urls import NoReverseMatch, reverse

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


def check_way_in(**kwargs: Any) -> Iterator[CheckMessage]:
    """What Django's own checks do not ask: people reach the console, sign in, and see its pages with their styles."""
    if settings.SESSION_ENGINE.endswith("db") and not apps.is_installed("django.contrib.sessions"):
        yield Error(
            "INSTALLED_APPS lacks 'django.contrib.sessions': nobody can sign in to the console.",
            hint="Add 'django.contrib.sessions', after 'workflows'.",
            id="workflows.E050",
        )
    try:
        get_template("admin/workflows/base_page.html")
    except TemplateDoesNotExist:
        yield Error(
            "TEMPLATES does not find the templates of the console.",
            hint="Write 'APP_DIRS': True in TEMPLATES.",
            id="workflows.E051",
        )
    if not (apps.is_installed("django.contrib.staticfiles") and settings.STATIC_URL):
        yield Warning(
            "The stylesheets of the console are not served.",
            hint="Add 'django.contrib.staticfiles' to INSTALLED_APPS, and write STATIC_URL = 'static/'.",
            id="workflows.W052",
        )
    try:
        reverse("admin:index")
    except (NoReverseMatch, AttributeError):  # no such path, or no ROOT_URLCONF
        yield Warning(
            "No URL leads to the console.",
            hint="In the module of ROOT_URLCONF write path('admin/', admin.site.urls).",
            id="workflows.W053",
        )
