"""The filters of the list of workflows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from workflows.console import paging, time_filters
from workflows.console.time_filters import EndedFilter
from workflows.definition import definitions
from workflows.extension import installed
from workflows.health import counts, late, money_at_risk, recent_failures, selecting
from workflows.models import State, Wait, Workflow
from workflows.models.failure import of_code
from workflows.models.workflow import AWAITS_RELEASE, UNACKNOWLEDGED
from workflows.telling import words
from workflows.wording import ENGINE_CODES, of_person, words_for_step


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


class Known(admin.SimpleListFilter):
    """A filter that shows nothing for another choice than those that it has."""

    def has_output(self) -> bool:
        return super().has_output() or bool(self.value())  # without any it would be passed over

    @property
    def told(self) -> str:
        """The sentence above a list whose address names a choice that there is not: nobody has asked for all."""
        known = [name for name, _ in self.lookup_choices]
        return "" if not self.value() or self.value() in known else time_filters.UNKNOWN


class PresetFilter(Known):
    """Frequent questions about workflows. What stands still until somebody acts is on “For you” alone."""

    title = "urgency"
    parameter_name = "preset"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [
            ("unacknowledged", "Failed and not acknowledged"),
            (counts.UNKNOWN_TYPE, "Waits for a release that knows its type"),
            (counts.LATE_DEFERRED, "Deferred step that no worker takes"),
            (counts.UNCLEAR, "Perhaps charged, and not known for an hour"),
            (counts.HOLDING, "Failed, holds money and not acknowledged"),
            (counts.OVERDUE_WAIT, "Waits, and it is overdue"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        match self.value():
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
        return queryset.none() if self.value() else queryset


class UnexpectedFilter(admin.SimpleListFilter):
    """Failures that are not the patient's own, for links from Home's sentence. The page does not offer it."""

    title = "whether it was expected"
    parameter_name = "unexpected"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [("yes", of_person("No: not the patient's own doing"))] if self.value() else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        return queryset.filter(recent_failures.is_unexpected()) if self.value() else queryset


class MoneyFilter(Known):
    """What became of the money. Comes after all other filters: it looks at the newest of what they leave."""

    title = f"money, of the newest {money_at_risk.FAILURES:,}"
    parameter_name = "money"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        charges = self.value() or any(each.wording.money for each in definitions().values())
        return [("held", "Held"), ("unclear", "Unclear"), ("refunded", "Refunded")] if charges else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if not self.value() or self.told:
            return queryset.none() if self.told else queryset
        order = ("-completed_at", "-id") if asks_for_failures(request) else ("-id",)
        newest = queryset.order_by(*order)
        return selecting.with_ids(queryset, money_at_risk.newest_with(newest, self.value() or ""))


# Each of these limits the list to failures: no index has these columns of all rows.
OF_FAILURES = {"step", "code", "release"}


class _OfFailure(admin.SimpleListFilter):
    """The step, code or release of failures. The list offers it when it shows failures."""

    template = "admin/workflows/filter.html"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        known = self.offered()
        offered = known if asks_for_failures(request) else {}
        if (given := self.value()) is not None:
            offered.setdefault(given, known.get(given) or words.cut(given) or "None")
        return sorted(offered.items(), key=lambda each: each[1])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Workflow]) -> QuerySet[Workflow]:
        if self.value() is None or EndedFilter.parameter_name in request.GET:
            return queryset  # the failure that is asked for had that value, whatever happened since
        if asks_for_failures(request):
            queryset = queryset.filter(status=Workflow.Status.FAILED, cancelled_at=None)
        return queryset.filter(self.condition(self.value() or ""))

    def condition(self, value: str) -> Q:
        raise NotImplementedError

    def offered(self) -> dict[str, str]:
        """The values that a definition can produce, with their labels."""
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


def asks_for_failures(request: HttpRequest) -> bool:
    """Whether the list shows only failures, in the order of their index. Few other rows have a code."""
    asked = request.GET
    return (
        asked.get("preset") in ("unacknowledged", counts.HOLDING)
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


# --- Of features --------------------------------------------------------------------------------


class OfFeature(admin.SimpleListFilter):
    """A filter from a feature. `choosable`: the verbs that make sense for all matching rows."""

    choosable: Sequence[str] = ()


def of_features() -> list[type[OfFeature]]:
    return [each for feature in installed() for each in feature.filters()]
