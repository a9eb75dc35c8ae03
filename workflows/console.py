"""The console's own admin site. Outside `workflows.admin`, whose pages register themselves on it when imported."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse

from workflows.glance import glance


class ConsoleSite(admin.AdminSite):
    site_title = "Onramp"
    site_header = "Onramp operations"
    index_title = "Home"
    site_url = None

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        shown = glance() if request.user.has_perm("workflows.view_workflow") else None
        return super().index(request, {"glance": shown, **(extra_context or {})})
