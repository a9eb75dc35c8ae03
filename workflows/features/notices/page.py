"""The page on which each user switches off the e-mail about what waits, or on."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from workflows.models import MutedMail


@require_http_methods(["GET", "HEAD", "POST"])
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    assert request.user.is_authenticated
    muted = MutedMail.objects.filter(pk=request.user.pk)
    if request.method == "POST":
        if request.POST.get("mail") == "on":
            muted.delete()
            messages.success(request, "You get mail about what waits for you.")
        elif request.POST.get("mail") == "off":
            MutedMail.objects.get_or_create(pk=request.user.pk)
            messages.success(request, "You get no mail, unless nobody else would get it.")
        return HttpResponseRedirect(request.path)
    context = {**site.each_context(request), "title": "Mail about what waits", "is_muted": muted.exists()}
    return TemplateResponse(request, "admin/workflows/mail.html", context)
