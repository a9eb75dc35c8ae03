"""The page on which users say who stands in for them while they are away; leads say so for anybody."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from workflows import times
from workflows.console.typed import TimeField
from workflows.console.verbs import colleague_field
from workflows.errors import NotAllowed
from workflows.features.deputies import operations
from workflows.models.manual_task import deciders
from workflows.operations.guards import ASSIGN


class DeputyForm(forms.Form):
    """Who is away (for leads only), who stands in, and when. No user is preselected.

    `knowing`: what the page has said that the deputy may not decide.
    """

    begins = TimeField(label="From", required=False)
    until = TimeField(label="Until")
    knowing = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        zone = f"By the clock of {times.zone()}."
        self.fields["begins"].help_text = f"{zone} If it is empty, it begins now."
        self.fields["until"].help_text = f"{zone} At most {operations.LONGEST.days} days later. It ends by itself."
        is_lead = user.has_perm(ASSIGN)
        others = deciders() if is_lead else deciders().exclude(pk=user.pk)
        unfit = {} if is_lead else operations.unfit(user)
        deputy = colleague_field(others, "They need the rights and the teams themselves.", unfit)
        deputy.label = "Who stands in"
        fields: dict[str, Any] = {"deputy": deputy, **self.fields}
        if is_lead:
            absent = colleague_field(operations.people(), "Yourself, or a colleague who is ill.")
            absent.label = "Who is away"
            fields = {"absent": absent, **fields}
        self.fields = fields

    def clean(self) -> dict[str, Any]:
        """Ask a lead once more if the deputy may not decide all: the list of deputies did not know who is away."""
        cleaned = super().clean() or self.cleaned_data
        known = cleaned.pop("knowing", "")
        both = operations.people().in_bulk([each for each in map(cleaned.get, ("absent", "deputy")) if each])
        if len(both) == 2 and (left := operations.left_by(both[cleaned["absent"]], both[cleaned["deputy"]])) != known:
            self.data = {name: self.data[name] for name in self.data} | {"knowing": left}
            if left:
                self.add_error("deputy", f"{left}. Choose somebody else, or press once more.")
        return cleaned


@require_http_methods(["GET", "HEAD", "POST"])
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    user = request.user
    assert user.is_authenticated
    form = DeputyForm(request.POST if "until" in request.POST else None, user=user)
    if request.method == "POST":
        try:
            if "end" in request.POST or form.is_valid():
                messages.success(request, _do(request, form))
                return HttpResponseRedirect(request.path)
        except NotAllowed as refusal:
            if not form.is_bound:
                messages.error(request, str(refusal))
                return HttpResponseRedirect(request.path)
            form.add_error(None, str(refusal))
    may_set_all = user.has_perm(ASSIGN)
    rows = operations.open_ones()
    shown = list((rows if may_set_all else rows.filter(Q(absent=user) | Q(deputy=user)))[: operations.SHOWN])
    context = {
        **site.each_context(request),
        "title": "Away: who stands in",
        "form": form,
        "rows": shown,
        "useless": operations.useless(shown),
        "leaving": operations.leaving(shown),
        "may_set_all": may_set_all,
        "kept_days": operations.KEPT.days,
    }
    return TemplateResponse(request, "admin/workflows/deputies/page.html", context)


def _do(request: HttpRequest, form: DeputyForm) -> str:
    assert request.user.is_authenticated
    if ended := request.POST.get("end", ""):
        return operations.end(
            int(ended) if ended.isascii() and ended.isdigit() and len(ended) < 19 else 0, user=request.user
        )
    given = {"absent": request.user.pk, **form.cleaned_data}
    return operations.appoint(given.pop("absent"), user=request.user, **given)
