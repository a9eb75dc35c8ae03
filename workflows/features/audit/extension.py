"""What the audit adds to pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension, InBar, Panel
from workflows.operations.guards import VIEW_AUDIT

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http.response import HttpResponseBase

    from workflows.models import Workflow


class AuditExtension(Extension):
    bar = (InBar(100, "Audit", "admin:audit", [VIEW_AUDIT]),)

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.audit import page

        return {"audit": page.view, "audit_export": page.export}

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        return [Panel("caller", "admin/workflows/workflow/looked.html")] if user.has_perm(VIEW_AUDIT) else []
