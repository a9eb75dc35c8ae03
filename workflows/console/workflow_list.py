"""The list of workflows: which are stuck, retrying, failed, or waiting, and for what?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import Combinable, RawSQL
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from workflows import operations, times
from workflows.console import acknowledging, dialogues, failures, paging, revealing, workflow_page
from workflows.console.base import OptionalReasonForm, RetryForm, Verb
from workflows.console.choosing import ChoosesMany
from workflows.definition import definitions
from workflows.effects.reconcile import DOUBT_TASK_TYPE, UNDECLARED_TASK_TYPE
from workflows.engine import unreadable
from workflows.engine.compensation import DEATHS_TASK_TYPE, LOSSES_TASK_TYPE, UNDO_TASK_TYPE
from workflows.extension import installed
from workflows.features.outages import cause_page as cause
from workflows.health import bounded, counts, late, money_at_risk, recent_failures, selecting
from workflows.health.failures import Ends, ends
from workflows.models import Attempt, ManualTask, Service, State, Wait, Workflow
from workflows.models.failure import of_code
from workflows.models.workflow import AWAITS_RELEASE, UNACKNOWLEDGED, is_parked_on
from workflows.state import parking
from workflows.telling import consequences, patient, words
from workflows.telling.steps import step_of
from workflows.templatetags.cards import moment
from workflows.wording import ENGINE_CODES, words_for_step

RETRY = Verb(
    slug="retry",
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
        f"A worker takes it up at once instead of at {words.clock(row.invisible_until)}.",
        _if_it_does_not_help(row),
    ],
    done="It is due now.",
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
    if row.waiting_for or not (row.retry_count or row.compensating):
        return "What it waits for has not happened yet: unless it happens first, it will wait again as before."
    if row.compensating:
        return "If the reversal fails again, that counts: after three failures a person is asked."
    return f"It has failed {row.retry_count} times in a row; should it fail again, that counts."


# What can still be cancelled, or run now.
UNDER_WAY = (State.QUEUED, State.RUNNING, State.RETRYING, State.WAITING, State.PARKED)


class StateFilter(paging.Filter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [(state.value, state.label) for state in State]

    def queryset(self, request: HttpRequest, queryset: Any) -> QuerySet[Workflow]:
        value = self.value()
        rows: QuerySet[Workflow] = queryset.in_state(value) if value else queryset
        return rows

    def arms(self, request: HttpRequest, rows: Any) -> list[QuerySet[Workflow]]:
        return selecting.arms_in_state(rows, self.value() or "") if self.value() else [rows]


# The engine's own questions: something went wrong, and only a person can tell how to go on.
ENGINE_TASK_TYPES = (
    DOUBT_TASK_TYPE,
    UNDO_TASK_TYPE,
    UNDECLARED_TASK_TYPE,
    DEATHS_TASK_TYPE,
    LOSSES_TASK_TYPE,
    unreadable.TASK_TYPE,
)


def _needing_attention() -> tuple[Q, ...]:
    """Failed, being undone, failing for the third time in a row or more, or with a question of the engine's."""
    types = [*ENGINE_TASK_TYPES, *dialogues.of_features()]
    asked = ManualTask.objects.filter(state=ManualTask.State.OPEN, task_type__in=types)
    return (
        Q(status="FAILED", cancelled_at=None),
        Q(status="PENDING", compensating=True),
        Q(status="PENDING", retry_count__gte=3),
        Q(status="PENDING", pk__in=asked.values("workflow_id")),
    )


class PresetFilter(paging.Filter):
    """The questions that people open the list with."""

    title = "urgency"
    parameter_name = "preset"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [
            ("attention", "Needs attention"),
            ("failed-today", "Failed today"),
            ("unacknowledged", "Failed and not acknowledged"),
            (counts.UNKNOWN_TYPE, "Waits for a release that knows its type"),
            (counts.LATE_DEFERRED, "Deferred step that no worker takes"),
            (counts.UNCLEAR, "Perhaps charged, and not known for an hour"),
            (counts.HOLDING, "Failed, holds money and not acknowledged"),
            ("decision", "Needs a decision"),
            (counts.OVERDUE_WAIT, "Waits, and it is overdue"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        match self.value():
            case "attention":
                return queryset.filter(reduce(or_, _needing_attention()))
            case "failed-today":
                today = timezone.localdate()
                since, until = times.start_of(today), times.start_of(today + timedelta(days=1))
                return recent_failures.failed_between(queryset, since, until)
            case "unacknowledged":
                return queryset.filter(UNACKNOWLEDGED)
            case counts.UNKNOWN_TYPE:
                return queryset.filter(AWAITS_RELEASE)
            case counts.LATE_DEFERRED:
                return queryset.filter(pk__in=late.with_late_deferred_steps())
            case counts.UNCLEAR:
                return queryset.filter(pk__in=money_at_risk.long_unclear_charges())
            case counts.HOLDING:
                return queryset.filter(UNACKNOWLEDGED, pk__in=money_at_risk.standing_charges())
            case counts.OVERDUE_WAIT:
                return queryset.filter(status="PENDING", pk__in=Wait.objects.overdue().values("workflow_id"))
            case "decision":
                return queryset.filter(status="PENDING", pk__in=ManualTask.objects.open().values("workflow_id"))
        return queryset

    def arms(self, request: HttpRequest, rows: QuerySet[Workflow]) -> list[QuerySet[Workflow]]:
        if self.value() == "attention":
            return [rows.filter(condition) for condition in _needing_attention()]
        return [self.queryset(request, rows)]


class FailedFilter(admin.SimpleListFilter):
    """What failed between two times: Home's numbers lead here. The page does not offer it."""

    title = "time of failure"
    parameter_name = "failed"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return _told_times(self.value() or "")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        found = recent_failures.interval(self.value() or "")
        return recent_failures.failed_between(queryset, *found) if found else queryset


class EndedFilter(admin.SimpleListFilter):
    """What failed between two times, whatever became of it since: the charts lead here. The page does not offer it."""

    title = "time of failure, retried since or not"
    parameter_name = "ended"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return _told_times(self.value() or "")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        """By one array: PostgreSQL would parse each of ten thousand parameters."""
        if not self.value():
            return queryset
        return queryset.filter(pk__in=RawSQL("SELECT unnest(%s::bigint[])", [list(self.ends.workflows)]))

    @cached_property
    def ends(self) -> Ends:
        found = recent_failures.interval(self.value() or "")
        return ends(*found, failures.cause_of(self.request)) if found else Ends(0, {})

    @property
    def told(self) -> str:
        """What stands above the list: how many failures are listed, and how many workflows are failed still."""
        if not self.value():
            return ""
        number, workflows = self.ends.number, len(self.ends.workflows)
        failed = sum(self.ends.workflows.values())
        told = f"{_so_many(number, 'failure')} of {_so_many(workflows, 'workflow')}."
        if failed == workflows:
            return told
        if not failed:
            return f"{told} None of them is failed still."
        return (
            f"{told} {failed:,} of them {'is' if failed == 1 else 'are'} failed still; the others have gone on since."
        )


def _told_times(text: str) -> list[tuple[str, str]]:
    if not (found := recent_failures.interval(text)):
        return []
    since, until = map(times.minute, found)  # with their dates: a bulk operation keeps what it was chosen by
    return [(text, f"From {since} to {until}")]


def _so_many(number: int, what: str) -> str:
    return f"{bounded.text(number)} {what}{'s' * (number != 1)}"


class UnexpectedFilter(admin.SimpleListFilter):
    """Of what failed, what is not the patient's own: Home's sentence leads here. The page does not offer it."""

    title = "whether it was expected"
    parameter_name = "unexpected"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [("yes", "No: not the patient's own doing")] if self.value() else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        return queryset.filter(recent_failures.is_unexpected()) if self.value() else queryset


# By themselves they ask for failures: of all rows, no index has them.
OF_FAILURES = {"step", "code", "release"}


class _OfFailure(admin.SimpleListFilter):
    """Where, with which code, or in which release something failed. The list offers it beside what has failed."""

    template = "admin/workflows/filter.html"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        offered = self.offered() if _asks_for_failures(request) else {}
        if (given := self.value()) is not None:
            offered.setdefault(given, words.cut(given) or "None")
        return sorted(offered.items(), key=lambda each: each[1])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if self.value() is None or EndedFilter.parameter_name in request.GET:
            return queryset  # the end that is asked for was at that step, whatever the workflow has met since
        if _asks_for_failures(request):
            queryset = queryset.filter(status=Workflow.Status.FAILED, cancelled_at=None)
        return queryset.filter(self.condition(self.value() or ""))

    def condition(self, value: str) -> Q:
        raise NotImplementedError

    def offered(self) -> dict[str, str]:
        """The values that a definition may bring about, and their labels."""
        return {}


class StepFilter(_OfFailure):
    title = parameter_name = "step"

    def condition(self, value: str) -> Q:
        return Q(current_step=value)

    def offered(self) -> dict[str, str]:
        steps = [(each.wording, step.name) for each in definitions().values() for step in each.steps]
        return {name: words_for_step(wording, name).title for wording, name in steps}


class CodeFilter(_OfFailure):
    title = parameter_name = "code"

    def condition(self, value: str) -> Q:
        return of_code(value)

    def offered(self) -> dict[str, str]:
        codes = {code for each in definitions().values() for code in each.wording.codes}
        return {code: words.plain(code) for code in {*codes, *ENGINE_CODES}}


class ReleaseFilter(_OfFailure):
    title = parameter_name = "release"

    def condition(self, value: str) -> Q:
        return Q(failed_release=value)


def _asks_for_failures(request: HttpRequest) -> bool:
    """Whether the list has failures alone, in the order in which their index has them. Of all rows few have a code."""
    asked = request.GET
    return (
        asked.get("preset") in ("failed-today", "unacknowledged", counts.HOLDING)
        or asked.get("state") == State.FAILED
        or recent_failures.interval(asked.get("failed", "")) is not None
        or (bool(OF_FAILURES & {*asked}) and not {"state", "preset", "ended"} & {*filter(asked.get, asked)})
    )


class TypeFilter(admin.SimpleListFilter):
    title = "type"
    parameter_name = "workflow_type"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [(name, words.workflow_type(name)) for name in sorted(definitions())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        value = self.value()
        return queryset.filter(workflow_type=value) if value else queryset


class ParkedFilter(admin.SimpleListFilter):
    title = "what it is parked on"
    parameter_name = "parked_on"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        """The services, and causes, that workflows are parked on, and the one asked for: its last may have gone on."""
        names = sorted({*parking.names(), *filter(None, [self.value()])})
        causes = Service.objects.exclude(step="").in_bulk(names)
        return [(name, cause.label_of(causes[name]) if name in causes else name) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        value = self.value()
        return queryset.filter(is_parked_on(value)) if value else queryset


class CauseFilter(admin.SimpleListFilter):
    """What failed for a cause before its brake came on: its page leads here. The list does not offer it."""

    title = "step where many failed"
    parameter_name = "cause"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        if self.value() is None:
            return []
        found = cause.named(self.value(), request.user)  # a filter without a choice would be passed over
        return [(self.value() or "", cause.label_of(found) if found else "One that is not known")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if self.value() is None:
            return queryset
        found = cause.named(self.value(), request.user)
        return queryset.filter(pk__in=found.judged) if found else queryset.none()


def _verbs() -> list[Verb]:
    of_features = [verb for each in installed() for verb in each.verbs()]
    engines = (acknowledging.ACKNOWLEDGE, revealing.REVEAL)
    return sorted((RETRY, RUN_NOW, CANCEL, *of_features, *engines), key=lambda verb: verb.rare)


@admin.register(Workflow)
class WorkflowAdmin(ChoosesMany):
    list_display = ("number", "type", "state", "step", "attempt", "waits_for", "next_attempt", "error", "age")
    list_filter = (
        PresetFilter,
        StateFilter,
        TypeFilter,
        ParkedFilter,
        CauseFilter,
        FailedFilter,
        EndedFilter,
        UnexpectedFilter,
        StepFilter,
        CodeFilter,
        ReleaseFilter,
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
            .annotate(attempt_number=Subquery(latest), about=patient.about())
            .defer("payload", "context")
        )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        of_group = failures.of_list(request) if self.has_view_permission(request) else {}
        return super().changelist_view(request, {**of_group, **(extra_context or {})})

    def get_ordering(self, request: HttpRequest) -> list[str | Combinable]:
        """The newest first; for failures of some time the latest failure first, as its index has it."""
        plain = request.GET.get("state") == State.FAILED and not OF_FAILURES & {*request.GET}
        return ["-completed_at", "-id"] if _asks_for_failures(request) and not plain else ["-id"]

    def choosable(self, request: HttpRequest) -> Sequence[str]:
        if _asks_for_failures(request) or "cause" in request.GET:
            return ("retry", "acknowledge")
        if request.GET.get("state") in UNDER_WAY or "parked_on" in request.GET:
            return ("run_now", "cancel")
        return ()

    def why_nothing(self, row: Workflow) -> str:
        return operations.why_emptied(row)

    def workflow_of(self, row: Workflow) -> int:
        return row.pk

    def page(self, request: HttpRequest, row: Workflow) -> dict[str, Any]:
        assert isinstance(request.user, User)
        return workflow_page.page(row, request.user, before=request.GET.get("before", ""))

    # --- Columns --------------------------------------------------------------------------------

    @admin.display(description="Type")
    def type(self, row: Any) -> SafeString | str:
        """And whom it is about."""
        title, about = words.workflow_type(row.workflow_type), patient.masked_by(row.workflow_type, row.about)
        return format_html('{} <span class="whom">{}</span>', title, about) if about else title

    @admin.display(description="State")
    def state(self, row: Workflow) -> SafeString:
        return words.badge(row.state, State(row.state).label)

    @admin.display(description="Step", empty_value="")
    def step(self, row: Workflow) -> str:
        return "" if row.status == Workflow.Status.COMPLETE else step_of(row, row.current_step)

    @admin.display(description="Attempts")
    def attempt(self, row: Any) -> str:
        number = f"{row.attempt_number or 0}"
        return f"{number} ({row.retry_count} failed)" if row.retry_count else number

    @admin.display(description="Waiting for")
    def waits_for(self, row: Workflow) -> str:
        return row.waiting_for if row.state in (State.WAITING, State.PARKED, State.COMPENSATING) else ""

    @admin.display(description="Next attempt")
    def next_attempt(self, row: Workflow) -> SafeString | str:
        if row.status != Workflow.Status.PENDING or row.state == State.RUNNING:
            return ""
        return "due" if row.invisible_until <= timezone.now() else moment(row.invisible_until)

    @admin.display(description="Error")
    def error(self, row: Workflow) -> SafeString | str:
        error = words.error(code=row.last_error_code, error_class=row.last_error_class)
        if not error or row.state not in (State.FAILED, State.RETRYING, State.PARKED, State.COMPENSATING):
            return ""
        return format_html('<code class="quiet name">{}</code>', error)

    @admin.display(description="Age")
    def age(self, row: Workflow) -> SafeString:
        return words.age_of(row.created_at)
