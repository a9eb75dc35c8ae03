"""The console's own admin site. Outside `workflows.admin`, whose pages register themselves on it when imported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import path

from workflows.extension import installed
from workflows.features.bulk import operations as bulk
from workflows.features.outages.circuits import CircuitState
from workflows.features.outages.health import SEE_SERVICES, Services
from workflows.features.retention import erasing
from workflows.health import bounded, counts
from workflows.health.health import judge
from workflows.health.needs_a_person import Asked, count, groups

# There are as many services as the code has clients for, and Home has those that are in trouble.
TROUBLED_SHOWN = 20


class ConsoleSite(admin.AdminSite):
    site_title = "Onramp"
    site_header = "Onramp operations"
    index_title = "Home"
    site_url = None
    enable_nav_sidebar = False  # the lists need its width, and Home has the same few links

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """Django's list, with the console's own pages before users and groups."""
        return sorted(super().get_app_list(request, app_label), key=lambda app: app["app_label"] == "auth")

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from workflows.console import navigation  # as below

        is_staff = self.has_permission(request)
        bar = navigation.bar(request) if is_staff else []
        asked = installed() if is_staff and request.user.has_perm("workflows.view_workflow") else ()
        context = super().each_context(request)
        more = navigation.more(context["available_apps"], bar)
        banners = [told for each in asked for told in each.banners()]
        return {**context, "navigation": bar, "more_pages": more, "banners": banners}

    def get_urls(self) -> list[Any]:
        from workflows.console import failures, find, needs_a_person  # whose pages need this site

        pages: dict[str, Callable[..., HttpResponseBase]] = {
            "find": find.view,
            "needs_a_person": needs_a_person.view,
            "failures": failures.view,
            "assign_failures": failures.assign,
        }
        for each in installed():
            pages |= each.views()
        ours = [
            path(f"{name.replace('_', '-')}/", self.admin_view(partial(view, site=self)), name=name)
            for name, view in pages.items()
        ]
        # No row has a page elsewhere; and the admin's redirect would ask PostgreSQL for whatever stands in it.
        return [*ours, *(each for each in super().get_urls() if getattr(each, "name", "") != "view_on_site")]

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        return super().index(request, {**self._glance(request), **(extra_context or {})})

    def _glance(self, request: HttpRequest) -> dict[str, Any]:
        from workflows.console import home, needs_a_person  # as above
        from workflows.features.trends import page as trends  # as above

        if not request.user.has_perm("workflows.view_workflow"):
            return {"glance": None}
        assert isinstance(request.user, User)
        read = counts.read()
        # Services that are not called as usual, or may soon not be; and those that workflows wait for.
        services = found.services if (found := read.of(Services)) else []
        troubled = [each for each in services if each.state != CircuitState.CLOSED or each.parked.number]
        sees_services = request.user.has_perm(SEE_SERVICES)
        failed = groups(Asked(request.user), most=bounded.limit())
        to_approve = bulk.to_approve(request.user).count() + erasing.to_approve(request.user).count()
        causes = needs_a_person.number_of_causes(request.user, read)
        asking = sum(not each.asks_nobody for each in failed)
        return {
            "glance": read,
            "services": troubled[:TROUBLED_SHOWN] if sees_services else [],
            "next_task": home.next_task(request.user),
            "health": home.health(judge(read), request.user),
            "trends": trends.of_workflows(request.GET.get("range", ""), read.at),
            "states": home.states(read),
            "numbers": home.numbers(read, request.user),
            "needs_a_person": bounded.text(causes + to_approve + count(Asked(request.user)) + asking),
            "first_lines": home.first_lines(request.user, failed),
        }
