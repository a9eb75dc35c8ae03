"""What lists that are kept, or taken along, add to pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension, Panel
from workflows.operations.guards import EXPORT

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase


class ListsExtension(Extension):
    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.lists import export, views

        return {"export_workflows": export.view, "saved_views": views.view}

    def in_list(self, request: HttpRequest) -> Iterable[Panel]:
        from workflows.features.lists import export, views

        yield Panel("above", "admin/workflows/lists/above.html", {"views": views.links(request)})
        if request.user.has_perm(EXPORT):
            yield Panel("above", "admin/workflows/lists/export.html", {"most": export.MOST})
