"""What notices add to pages and checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from workflows.extension import Extension
from workflows.features.notices.checks import check_notices

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase


class NoticesExtension(Extension):
    deploy_checks = (check_notices,)
    empties = ("DELETE FROM workflows_notice WHERE workflow_id = ANY (%(ids)s)",)

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.notices import page

        return {"mail": page.view}
