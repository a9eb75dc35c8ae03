"""What the audit adds to pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension, InBar, Panel
from workflows.operations.guards import REVEAL, VIEW_AUDIT

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
        may_ask = user.has_perm(VIEW_AUDIT) or user.has_perm(REVEAL)  # who looks at patients learns who can tell of it
        return [Panel("caller", "admin/workflows/workflow/looked.html")] if may_ask else []
