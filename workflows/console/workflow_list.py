"""The list of workflows: which are stuck, retrying, failed, or waiting, and for what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from workflows import operations
from workflows.console import acknowledging, failures, links, panels, revealing, time_filters, workflow_page
from workflows.console import workflow_filters as filters
from workflows.console.choosing import ChoosesMany
from workflows.console.paging import KeysetList
from workflows.console.verbs import OptionalReasonForm, RetryForm, Verb
from workflows.console.workflow_order import PARAMETER, OrderFilter, order_of
from workflows.definition import definitions
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS
from workflows.extension import installed
from workflows.models import Attempt, ManualTask, State, Workflow
from workflows.models.workflow import PAUSED
from workflows.operations.guards import SEE_SERVICES
from workflows.state.parking import turn_at
from workflows.telling import consequences, money, patient, words
from workflows.telling.sentence import cause_of
from workflows.telling.steps import step_of
from workflows.templatetags.cards import short
from workflows.wording import name_of_code

RETRY = Verb(
    slug="retry",
    main=acknowledging.leaves_a_retry,
    label="Retry",
    permission=operations.RETRY,
    operation=operations.retry,
    applies=lambda row: row.state in (State.FAILED, State.CANCELLED),
    consequences=lambda row: [
        *consequences.of_retry(row),
        *(told for each in installed() for told in each.foretells("retry", row)),
    ],
    seen=(("seen", operations.ended_at),),
    form=RetryForm,
    why_not=lambda row, user: operations.why_not_retry(row.pk, user),
    done="It will be tried again from the first step.",
)
RUN_NOW = Verb(
    slug="run_now",
    main=True,
    label="Run now",
    permission=operations.RUN_NOW,
    operation=operations.run_now,
    applies=lambda row: (
        row.status == Workflow.Status.PENDING
        and row.state != State.RUNNING
        and row.invisible_until > timezone.now()
        and consequences.may_run_early(row)
    ),
    form=OptionalReasonForm,
    consequences=lambda row: [
        *consequences.of_run_now(row),
        _if_it_does_not_help(row),
    ],
    done="A worker was told to take it up now.",  # still true once one has, whatever came of it
)

CANCEL = Verb(
    slug="cancel",
    label="Cancel",
    permission=operations.CANCEL,
    operation=operations.cancel,
    applies=lambda row: row.status == Workflow.Status.PENDING and not row.compensating,
    consequences=consequences.of_cancel,
    done="It is cancelled.",
    why_not=lambda row, user: operations.why_not_cancel(row.pk, user),
    dangerous=True,
    seen=(
        ("open_tasks", lambda row: [task.pk for task in _open_tasks(row)]),
        ("charged", lambda row: operations.held_by(row).standing),
        ("unclear", lambda row: operations.held_by(row).unclear),
    ),
)


def _open_tasks(row: Workflow) -> QuerySet[ManualTask]:
    return ManualTask.objects.open().filter(workflow=row.pk).order_by("pk")


def _if_it_does_not_help(row: Workflow) -> str:
    if row.parked_on and row.waiting_for == turn_at(row.parked_on):
        return f"If the {row.parked_on} service has no place for another call, it waits for its turn again."
    if row.parked_on:
        cause = cause_of(row)
        down = "the step is not mended" if cause else f"the {row.parked_on} service counts as down"
        told = f"While {down}, no call is made before the next trial, and the workflow is parked again."
        return f"{told} An engineer has “Try now”, on the page of the {'step' if cause else 'service'}."
    if row.waiting_for or not (row.retry_count or row.compensating):
        return "What it waits for has not happened yet: unless it happens first, it will wait again as before."
    if row.compensating:
        told = "If the reversal fails again, that counts: after three failures a person is asked"
        return f"{told}, or after {OUTAGE_ATTEMPTS} at a service that does not answer."
    failed = f"It has failed {words.in_a_row(row.retry_count)}. Another failure counts, too"
    return f"{failed}: after too many in a row the workflow ends as failed."


# Where that is now which the list was once asked for: people have kept the addresses.
MOVED: dict[str, Callable[[], str]] = {
    "attention": lambda: reverse("admin:needs_a_person"),
    "decision": lambda: reverse("admin:needs_a_person"),
    "failed-today": lambda: f"{reverse('admin:workflows_workflow_changelist')}?failed=today",
}
# The states in which a workflow can be cancelled, or run now.
UNDER_WAY = (State.QUEUED, State.RUNNING, State.RETRYING, State.WAITING, State.PARKED)
ENDED = (State.COMPLETE, State.FAILED, State.CANCELLED)


class WorkflowList(KeysetList):
    """The list: of the rows that are shown, it reads the money, too."""

    def sorted_by(self, column: str) -> tuple[str, str]:
        for each in self.filter_specs:
            if isinstance(each, OrderFilter):
                sorted_as, order = each.of_column(column)
                return sorted_as, self.get_query_string({PARAMETER: order.name}) if order else ""
        return "", ""

    def _shown(self, ids: Sequence[Any]) -> list[Any]:
        rows = super()._shown(ids)
        told = money.of_rows(rows)
        for row in rows:
            row.money = told.get(row.pk, "")
            if not self.user.has_perm(SEE_SERVICES):
                row.waiting_for = words.unnamed(row.waiting_for, row.parked_on)
        return rows


def _verbs() -> list[Verb]:
    of_features = [verb for each in installed() for verb in each.verbs()]
    engines = (RETRY, RUN_NOW, CANCEL, acknowledging.ACKNOWLEDGE)
    return sorted((*engines, *of_features, revealing.REVEAL), key=lambda verb: verb.rare)


@admin.register(Workflow)
class WorkflowAdmin(ChoosesMany):
    list_filter = (
        OrderFilter,
        filters.PresetFilter,
        filters.StateFilter,
        filters.TypeFilter,
        *filters.of_features(),
        time_filters.FailedFilter,
        time_filters.EndedFilter,
        time_filters.CameFilter,
        time_filters.CompletedFilter,
        filters.UnexpectedFilter,
        filters.StepFilter,
        filters.CodeFilter,
        filters.ReleaseFilter,
        filters.MoneyFilter,
    )
    change_list_template = "admin/workflows/workflow/change_list.html"
    bulk_verbs = ("retry", "run_now", "cancel", "acknowledge")
    page_template = "admin/workflows/workflow/page.html"
    identity = ("idempotency_key",)
    verbs = _verbs()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Workflow]:
        latest = Attempt.objects.filter(workflow=OuterRef("pk")).order_by("-number").values("number")[:1]
        return (
            Workflow.objects.with_state()
            .annotate(attempt_number=Subquery(latest), about=patient.about(), charges=patient.amounts_of_charges())
            .defer("payload", "context")
        )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if time_filters.OF in request.GET:
            return self._with_days(request)
        if moved := MOVED.get(request.GET.get("preset", "")):
            return HttpResponseRedirect(moved())
        cause = failures.cause_of(request)
        parts = panels.by_place(panel for each in installed() for panel in each.in_list(request))
        context = {"incident": links.incident(cause) if cause else "", "panels": parts, **(extra_context or {})}
        return super().changelist_view(request, context)

    def _with_days(self, request: HttpRequest) -> HttpResponse:
        """Redirect to the list with the days that were chosen, in the form that links have."""
        query, refusal = time_filters.chosen(request.GET)
        if refusal:
            self.message_user(request, refusal, messages.ERROR)
        return HttpResponseRedirect(f"{request.path}?{query}")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WorkflowList]:
        return WorkflowList

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        return list(order_of(request).terms)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """The columns. Workflows that have ended have their end in place of what is next."""
        asked = request.GET
        is_over = asked.get("state") in ENDED or "completed" in asked or filters.asks_for_failures(request)
        columns = ["number", "type", "state", "step", "attempt", *(() if is_over else ("waits_for", "next_attempt"))]
        columns += ["error", *(["money"] if any(each.wording.money for each in definitions().values()) else [])]
        return [*columns, "submitted", *(["ended"] if is_over else [])]

    def choosable(self, request: HttpRequest) -> Sequence[str]:
        if filters.asks_for_failures(request):
            return ("retry", "acknowledge")
        for each in filters.of_features():
            if each.parameter_name in request.GET:
                return each.choosable
        return ("run_now", "cancel") if request.GET.get("state") in UNDER_WAY else ()

    def cause_of(self, request: HttpRequest) -> str:
        cause = failures.cause_of(request) if filters.asks_for_failures(request) else None
        return cause.name if cause else ""

    def why_nothing(self, row: Workflow) -> str:
        return operations.why_emptied(row)

    def workflow_of(self, row: Workflow) -> int:
        return row.pk

    def page(self, request: HttpRequest, row: Workflow) -> dict[str, Any]:
        assert request.user.is_authenticated
        return workflow_page.page(row, request.user, before=request.GET.get("before", ""))

    # --- Columns --------------------------------------------------------------------------------

    @admin.display(description="Type")
    def type(self, row: Any) -> SafeString | str:
        """The type, and the masked name of the patient."""
        title, about = words.workflow_type(row.workflow_type), patient.masked_by(row.workflow_type, row.about)
        return format_html('{} <span class="whom">{}</span>', title, about) if about else title

    @admin.display(description="State")
    def state(self, row: Workflow) -> SafeString:
        return words.state_badge(row)

    @admin.display(description="Step", empty_value="")
    def step(self, row: Workflow) -> str:
        return "" if row.status == Workflow.Status.COMPLETE else step_of(row, row.current_step)

    @admin.display(description="Attempts")
    def attempt(self, row: Any) -> str:
        number = f"{row.attempt_number or 0}"
        return f"{number} (failed {words.in_a_row(row.retry_count)})" if row.retry_count else number

    @admin.display(description="Waiting for")
    def waits_for(self, row: Workflow) -> str:
        return row.waiting_for if row.state in (State.WAITING, State.PARKED, State.COMPENSATING) else ""

    @admin.display(description="Next attempt")
    def next_attempt(self, row: Workflow) -> SafeString | str:
        if row.status != Workflow.Status.PENDING or row.state == State.RUNNING:
            return ""
        if (at := words.next_attempt_at(row)) is None:
            return "when resumed" if row.waiting_for == PAUSED else "after that"
        told = format_html("waits until {}", short(at)) if row.state == State.WAITING else short(at)
        return "due" if at <= timezone.now() else told

    @admin.display(description="Error")
    def error(self, row: Workflow) -> SafeString | str:
        if not (error := self.error_told(row)):
            return ""
        return format_html('<span class="quiet" title="{}">{}</span>', error, capfirst(name_of_code(error)))

    def error_told(self, row: Workflow) -> str:
        """The code of the error that it stands at, as people read it; empty if it stands at none."""
        stands = row.state in (State.FAILED, State.RETRYING, State.PARKED, State.COMPENSATING)
        return words.error(code=row.last_error_code, error_class=row.last_error_class) if stands else ""

    @admin.display(description="Money")
    def money(self, row: Any) -> str:
        return str(row.money)

    @admin.display(description="Submitted")
    def submitted(self, row: Workflow) -> SafeString:
        return _when(row.created_at)

    @admin.display(description="Ended")
    def ended(self, row: Workflow) -> SafeString | str:
        return _when(row.completed_at) if row.completed_at else ""


def _when(at: datetime) -> SafeString:
    """A time, and below it how long ago that is."""
    return format_html('{} <span class="whom">{}</span>', short(at), words.age_of(at))
