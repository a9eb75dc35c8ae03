"""What deputies add to pages: one on which users, and leads for anybody, say who stands in; Home says it to both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension, Panel
from workflows.features.deputies import operations

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from workflows.health.counts import Counts


class DeputiesExtension(Extension):
    def home(self, request: HttpRequest, read: Counts) -> Iterable[Panel]:
        rows = operations.now_of(request.user)
        if not rows:
            return []
        useless, me = operations.useless(rows), request.user.pk
        told = {"useless": useless, "leaving": operations.leaving(rows) - useless}
        # Of others a lead is told only what goes wrong.
        wrong = useless | told["leaving"]
        away = [row for row in rows if me in (row.absent_id, row.deputy_id) or row.pk in wrong]
        return [Panel("needs", "admin/workflows/deputies/home.html", {"away": away, **told})] if away else []

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.deputies import page

        return {"deputies": page.view}
