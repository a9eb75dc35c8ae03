"""What deputies add to pages: a page on which each user, and a lead for anybody, says who stands in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase


class DeputiesExtension(Extension):
    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.deputies import page

        return {"deputies": page.view}
