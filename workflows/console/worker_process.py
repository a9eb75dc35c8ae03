"""The list of workers: which are working, on what and on which release, and which have fallen silent.

Below it are the consumers of queues and the relays of the outbox, all of the last day, because they are few.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.db.models import DurationField, ExpressionWrapper, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from workflows.console import links
from workflows.console.base import ConsoleAdmin, time_column
from workflows.definition import wording_of_type
from workflows.engine import lease
from workflows.engine.claim import COMPENSATION
from workflows.engine.side_process_heartbeat import SILENT_AFTER
from workflows.health import side_processes, workers
from workflows.models import Attempt, SideProcess, WorkerProcess, Workflow
from workflows.telling import words
from workflows.telling.steps import title_of

# Later than any worker stops, so that the order has running workers first.
RUNS_ON = Value(datetime(9999, 12, 31, tzinfo=UTC))


ABOUT = (
    "A worker reports once a second, between steps. A worker that has not reported for longer than any step may take "
    "is silent."
)


class LiveFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [("live", "Live")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[WorkerProcess]) -> QuerySet[WorkerProcess]:
        return queryset.filter(workers.is_live(timezone.now())) if self.value() == "live" else queryset


def _side_process(row: SideProcess, at: datetime) -> dict[str, Any]:
    kind = {SideProcess.Kind.CONSUMER: "Consumes", SideProcess.Kind.RELAY: "Sends to"}[SideProcess.Kind(row.kind)]
    if row.stopped_at:
        badge = words.badge("failed", f"Died ({row.ended_how})") if row.ended_how else words.badge("stopped", "Stopped")
    else:
        is_silent = row.last_seen < at - timedelta(seconds=SILENT_AFTER)
        badge = words.badge("failed", "Silent") if is_silent else words.badge("running", "Running")
    return {
        "name": row.name,
        "badge": badge,
        "takes": f"{kind} {', '.join(row.takes)}",
        "release": row.release,
        "started": words.clock(row.started_at),
        "seen": words.clock(row.last_seen),
        "message": words.clock(row.last_message_at) if row.last_message_at else "None yet",
    }


@admin.register(WorkerProcess)
class WorkerProcessAdmin(ConsoleAdmin):
    list_display = ("worker", "badge", "working_on", "at_step", "release", "its_queue", "started", "seen")
    list_filter = (LiveFilter,)
    page_template = "admin/workflows/facts.html"
    change_list_template = "admin/workflows/workers.html"
    started, seen = time_column("Started", "started_at"), time_column("Last seen", "last_seen")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        at = timezone.now()
        also = {
            "side_processes": [_side_process(row, at) for row in side_processes.newest()],
            "unattended": side_processes.unattended(at),
        }
        return super().changelist_view(request, {**also, **(extra_context or {})})

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Running workers first, then those that stopped last."""
        return [ExpressionWrapper(RUNS_ON - Coalesce("stopped_at", RUNS_ON), DurationField()), "name", "id"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[WorkerProcess]:
        """Each worker with the workflow of its open attempt (`runs`): its heartbeat may be older.

        `type_told` is the type of the heartbeat's workflow.
        """
        running = Attempt.objects.filter(worker=OuterRef("name"), closed_at=None).order_by("-id")
        told = Workflow.objects.filter(pk=OuterRef("workflow_id"))
        return WorkerProcess.objects.annotate(
            runs=Subquery(running.values("workflow_id")[:1]), type_told=Subquery(told.values("workflow_type")[:1])
        )

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        facts = [
            ("Working on", self.working_on(row)),
            ("Step", self.at_step(row)),
            ("Release", row.release),
            ("Queue", self.its_queue(row)),
            ("Started", words.clock(row.started_at)),
            ("Last seen", words.clock(row.last_seen)),
            ("Ended", self.ended(row)),
        ]
        return {"badge": self.badge(row), "name": row.name, "facts": facts, "about": ABOUT}

    @admin.display(description="Worker")
    def worker(self, row: WorkerProcess) -> str:
        return row.name

    @admin.display(description="State")
    def badge(self, row: Any) -> SafeString:
        if row.stopped_at:
            return words.badge("failed", "Died") if row.ended_how else words.badge("stopped", "Stopped")
        if row.last_seen < timezone.now() - timedelta(seconds=lease.lease_seconds()):
            return words.badge("failed", "Silent")
        return words.badge("running", "Working") if row.runs else words.badge("complete", "Idle")

    @admin.display(description="Working on")
    def working_on(self, row: Any) -> SafeString | str:
        if row.stopped_at or not row.runs:
            return ""
        url = links.workflow(row.runs)
        return format_html('<a href="{}">workflow {}</a>', url, row.runs)

    @admin.display(description="Step")
    def at_step(self, row: Any) -> str:
        """The step of its last heartbeat, if that was in the same workflow."""
        if not row.runs or row.runs != row.workflow_id or row.stopped_at:
            return ""
        return title_of(wording_of_type(row.type_told), row.step)

    @admin.display(description="Queue")
    def its_queue(self, row: WorkerProcess) -> str:
        if not row.only:
            return row.queue
        return f"{row.queue} ({'reversals' if row.only == COMPENSATION else row.only} only)"

    def ended(self, row: WorkerProcess) -> str:
        if not row.stopped_at:
            return ""
        return f"{words.clock(row.stopped_at)} {f'by {row.ended_how}' if row.ended_how else 'in good order'}"
