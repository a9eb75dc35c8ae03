"""The console's admin site. It is outside `workflows.admin`, whose pages register on it when imported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import path

from workflows.console import looks
from workflows.console.non_atomic import non_atomic
from workflows.extension import installed
from workflows.health import bounded
from workflows.health.health import judge


class ConsoleSite(admin.AdminSite):
    site_title = "Onramp"
    site_header = "Onramp operations"
    index_title = "Home"
    site_url = None
    enable_nav_sidebar = False  # the lists need its width, and Home has the same few links

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Django's list, with the console's pages before users and groups."""
        return sorted(super().get_app_list(request, app_label), key=lambda app: app["app_label"] == "auth")

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from workflows.console import navigation  # as below

        if looks.BACKGROUND in request.headers:
            return {
                "base_template": "admin/workflows/background.html",
                "has_permission": True,
                "look": looks.seen(request),
            }
        is_staff = self.has_permission(request)
        bar = navigation.bar(request) if is_staff else []
        asked = installed() if is_staff and request.user.has_perm("workflows.view_workflow") else ()
        context = super().each_context(request)
        more = navigation.more(context["available_apps"], bar)
        banners = [told for each in asked for told in each.banners()]
        more_told = {"navigation": bar, "more_pages": more, "banners": banners}
        return {**context, **more_told, "look": looks.seen(request) if is_staff else ""}

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """A view for staff, which says in words what it refuses, and answers a look only where the page has changed."""
        from workflows.console.refused import in_words  # as below

        return super().admin_view(in_words(looks.unless_seen(view)), cacheable)

    def get_urls(self) -> list[Any]:
        from workflows.console import failures, find, help, incident, needs_a_person  # these pages need this site

        pages: dict[str, Callable[..., HttpResponseBase]] = {
            "find": find.view,
            "help": help.view,
            "needs_a_person": needs_a_person.view,
            "failures": failures.view,
            "incident": incident.view,
            "assign_failures": failures.assign,
        }
        for each in installed():
            pages |= each.views()
        ours = [
            path(f"{name.replace('_', '-')}/", self.admin_view(partial(view, site=self)), name=name)
            for name, view in pages.items()
        ]
        # No row has a page elsewhere, and the admin's redirect would query PostgreSQL for any text in the address.
        djangos = (each for each in super().get_urls() if getattr(each, "name", "") != "view_on_site")
        return [*non_atomic([*ours, *djangos])]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        return super().index(request, {**self._glance(request), **(extra_context or {})})

    def _glance(self, request: HttpRequest) -> dict[str, Any]:
        from workflows.console import home, panels  # as above

        if not request.user.has_perm("workflows.view_workflow"):
            return {"glance": None}
        assert request.user.is_authenticated
        read = looks.figures(request)
        first_lines, number = home.for_you(request.user, read)
        return {
            "glance": read,
            "next_task": home.next_task(request.user) if first_lines else None,
            "health": home.health(judge(read), request.user),
            "states": home.states(read),
            "panels": panels.by_place(panel for each in installed() for panel in each.home(request, read)),
            "numbers": home.numbers(read, request.user),
            "needs_a_person": bounded.text(number, bounded.people_limit()),
            "first_lines": first_lines,
        }
