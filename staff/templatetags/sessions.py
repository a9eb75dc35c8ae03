from __future__ import annotations

from typing import Any

from django import template
from django.conf import settings
from django.urls import reverse

from staff.sessions import left

register = template.Library()


@register.inclusion_tag("staff/session.html", takes_context=True)
def session_script(context: dict[str, Any]) -> dict[str, Any]:
    """The script that warns before a session ends, and keeps what was typed.

    On pages that a refused form may lead to (the sign-in and `step_up`) it has no user, and so keeps what was sent.
    """
    request = context.get("request")
    user = getattr(request, "user", None)
    if request is None or user is None or not user.is_authenticated or request.path == reverse("step_up"):
        return {"user_id": ""}
    return {
        "user_id": user.pk,
        "left": left(request.session),
        "warning": settings.SESSION_WARNING_SECONDS,
        "hours": settings.SESSION_COOKIE_AGE // 3600,
    }
