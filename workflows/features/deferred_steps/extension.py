"""What deferred steps add to pages and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.definition import wording_of_type
from workflows.extension import Extension, Panel, Said, Stay
from workflows.features.deferred_steps import telling
from workflows.features.deferred_steps.bulk_verbs import RUN_EACH_AGAIN
from workflows.features.deferred_steps.health import Deferred
from workflows.health import late
from workflows.health.needs_a_person import Source, given_up
from workflows.models import FollowUp, Workflow
from workflows.operations import guards
from workflows.wording import words_for_step

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from workflows.console.verbs import Verb
    from workflows.health.counts import Counts
    from workflows.models import Attempt


def _asks(row: FollowUp) -> str:
    return f"Given up: {words_for_step(wording_of_type(row.workflow.workflow_type), row.step).titled}"


class DeferredStepsExtension(Extension):
    bulk_verbs = (RUN_EACH_AGAIN,)
    stays = (
        Stay(
            "deferred",
            """EXISTS (SELECT FROM workflows_followup f
                        WHERE f.workflow_id = w.id
                          AND (f.due_at IS NOT NULL OR f.acknowledged_failure IS DISTINCT FROM f.created_at))""",
            "a step of it is still to be done: wait, have it run again, or acknowledge it if it was given up",
        ),
    )
    empties = ("DELETE FROM workflows_followup WHERE workflow_id = ANY (%(ids)s)",)
    needs_a_person = (
        Source(
            number=1,
            kind="given-up",
            label="Deferred step given up",
            model=FollowUp,
            rows=given_up,
            since="created_at",
            columns=("step",),
            asks=_asks,
            whom="Support",
            permissions=(guards.FOLLOW_UP,),
        ),
    )

    def figures(self, at: datetime) -> Deferred:
        return Deferred(len(late.with_late_deferred_steps()))

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        from workflows.features.deferred_steps import left_undone_page

        return {"left_undone": left_undone_page.view}

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.deferred_steps import page

        return (page.RUN_AGAIN,)

    def says(self, workflow: Workflow, attempt: Attempt | None) -> Said:
        if workflow.status != Workflow.Status.COMPLETE:
            return Said()
        is_running = attempt is not None and attempt.closed_at is None
        return Said(below=telling.lines(workflow, is_running=is_running))

    def home(self, request: HttpRequest, read: Counts) -> Iterable[Panel]:
        return [Panel("needs", "admin/workflows/left_undone_link.html")]

    def failures(self) -> Iterable[Panel]:
        return [Panel("below", "admin/workflows/left_undone_below.html")]
