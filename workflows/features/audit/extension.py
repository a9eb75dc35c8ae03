"""What the audit brings to pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension, InBar
from workflows.operations.guards import VIEW_AUDIT

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase


class AuditExtension(Extension):
    bar = (InBar(100, "Audit", "admin:audit", [VIEW_AUDIT]),)

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.audit import page

        return {"audit": page.view, "audit_export": page.export}
