"""The console's site in this project: the engine's, with our sign-in."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.contrib.admin import AdminSite
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from staff.own_sessions import sessions_page
from staff.sessions import session_view
from staff.sign_in import OwnPasswordView, SignInForm
from workflows.console.non_atomic import non_atomic
from workflows.console.site import ConsoleSite


class StaffSite(ConsoleSite):
    login_form = SignInForm
    # Django lets browsers cache this page with the user's bar, and the next user could see it.
    password_change_done = method_decorator(never_cache)(AdminSite.password_change_done)

    def register(self, model_or_iterable: Any, *args: Any, **options: Any) -> None:
        """Register a page, except allauth's, which would show client secrets and edit factors."""
        models = [model_or_iterable] if isinstance(model_or_iterable, type) else list(model_or_iterable)
        ours = [each for each in models if not each.__module__.startswith("allauth.")]
        super().register(ours, *args, **options)

    @method_decorator(never_cache)
    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The admin's page with our view, which also asks for a second factor."""
        from staff.second_factor import SignInView  # needs the models

        if request.method == "GET" and self.has_permission(request):
            return HttpResponseRedirect(reverse("admin:index", current_app=self.name))
        context = {"title": "Log in", "app_path": request.get_full_path(), "username": request.user.get_username()}
        context["single_sign_on"] = settings.OIDC_ISSUER
        if REDIRECT_FIELD_NAME not in {*request.GET, *request.POST}:
            context[REDIRECT_FIELD_NAME] = reverse("admin:index", current_app=self.name)
        request.current_app = self.name
        view = SignInView.as_view(
            extra_context=self.each_context(request) | context | (extra_context or {}),
            authentication_form=self.login_form,
            template_name="admin/login.html",
        )
        return cast(HttpResponse, view(request))

    @method_decorator(never_cache)
    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """The admin's page with our form."""
        request.current_app = self.name
        return OwnPasswordView.as_view(
            success_url=reverse("admin:password_change_done", current_app=self.name),
            extra_context=self.each_context(request) | (extra_context or {}),
        )(request)

    def get_urls(self) -> list[Any]:
        own = non_atomic([path("sessions/", self.admin_view(sessions_page), name="sessions")])
        return [path("session/", session_view, name="session"), *own, *super().get_urls()]
