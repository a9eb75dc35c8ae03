"""What the operator's API adds to pages, notices and the addresses of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from django.apps import apps

from workflows.extension import Extension, Note, ToTell
from workflows.health.bounded import Link
from workflows.operations import guards

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User

    from workflows.console.home import First
    from workflows.models import Workflow


class OperatorApiExtension(Extension):
    to_tell = (
        ToTell(
            "second_person.wanted",
            "proposal",
            """SELECT id, workflow_id, asked_at FROM workflows_proposal
                WHERE state = 'asked' AND lapses_at > statement_timestamp()""",
            [guards.RETRY, guards.CANCEL, guards.DECIDE, guards.RESOLVE],
            is_urgent=False,
            model="proposal",
        ),
    )
    empties = (
        """UPDATE workflows_proposal
              SET reason = '', state = CASE state WHEN 'asked' THEN 'stale' ELSE state END
            WHERE workflow_id = ANY (%(ids)s)""",
    )
    belongs = ("workflows_proposal WHERE workflow_id",)

    def api(self) -> Mapping[str, str]:
        # It reads by the console's pages: without them there is nothing to serve.
        is_there = apps.is_installed("django.contrib.admin")
        return {"v1/operator/": "workflows.features.operator_api.urls"} if is_there else {}

    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.operator_api import page

        return (page,)

    def first_lines(self, user: User) -> Sequence[First]:
        from workflows.features.operator_api import page

        return page.first_lines(user)

    def number_awaiting(self, user: User) -> int:
        from workflows.features.operator_api import proposals

        return proposals.to_approve(user).count()

    def awaiting(self, user: User) -> Sequence[tuple[str, Link]]:
        from workflows.features.operator_api import page

        return [(page.sentence(row), Link("proposal", pk=str(row.pk))) for row in page.shown(user)]

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        from workflows.features.operator_api import page

        return page.notes(workflow)
