"""Manual tasks: what awaits a decision, for how long, and the decision."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.safestring import SafeString

from workflows import operations
from workflows.admin import words
from workflows.admin.base import ConsoleAdmin
from workflows.compensation import TASK_TYPE as UNDO_TASK
from workflows.jsonb import ensure_storable
from workflows.ledger import DOUBT_TASK
from workflows.models import ManualTask, State, Workflow

if TYPE_CHECKING:
    from workflows.models.manual_task import ManualTaskQuerySet

OPEN = ManualTask.State.OPEN


class DecisionForm(forms.Form):
    decision = forms.ChoiceField(choices=[("approve", "Approve"), ("reject", "Reject")])
    reason = forms.CharField(
        max_length=500,
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="To say no needs one. Kept in the history, with your name. No patient data, please.",
    )


class DoubtForm(DecisionForm):
    """Whether an effect happened; if so, with what result."""

    answer = forms.JSONField(
        required=False,
        label="Result, if it happened",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text='What the step would have returned, as a JSON object: {"charge_id": "ch_..."}. Empty if nothing.',
    )

    def clean_answer(self) -> dict[str, Any]:
        answer = self.cleaned_data["answer"] or {}
        try:
            if not isinstance(answer, dict):
                raise ValueError
            ensure_storable(answer)
        except ValueError:
            raise forms.ValidationError("Give a JSON object.") from None
        return answer


class UndoForm(DecisionForm):
    """Whether what could not be undone is dealt with; if so, how."""

    answer = forms.ChoiceField(
        label="If it is dealt with",
        choices=[("undone", "It is undone by hand"), ("kept", "It stays as it is")],
        widget=forms.RadioSelect,
        initial="undone",
        required=False,
    )

    def clean_answer(self) -> dict[str, Any]:
        return {"kept": True} if self.cleaned_data["answer"] == "kept" else {}


@dataclass(frozen=True, slots=True)
class Dialogue:
    """How a type of question is put: its form, the words on its two buttons, and what will come of them."""

    form: type[DecisionForm]
    approve: str
    reject: str
    consequences: str


APPROVAL = Dialogue(
    DecisionForm, "Approve", "Reject", "Approved, the workflow goes on at once. Rejected, it fails with this reason."
)
DIALOGUES = {
    DOUBT_TASK: Dialogue(
        DoubtForm,
        *("It happened", "It did not happen"),
        "It goes on at once: with this result if it happened. If not, it is called again, under a new key, unless the "
        "workflow is being undone.",
    ),
    UNDO_TASK: Dialogue(
        UndoForm,
        *("It is dealt with", "Try again"),
        "Dealt with, what was done before it is undone next. Else its undo is tried again, three times.",
    ),
}


def dialogue(task: ManualTask) -> Dialogue:
    return DIALOGUES.get(task.task_type, APPROVAL)


class StateFilter(admin.SimpleListFilter):
    """Open ones unless asked otherwise."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        return [*ManualTask.State.choices, ("all", "All")]

    def choices(self, changelist: Any) -> Any:
        for value, label in self.lookup_choices:
            yield {
                "selected": (self.value() or OPEN) == value,
                "query_string": changelist.get_query_string({"state": value}),
                "display": label,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[ManualTask]) -> QuerySet[ManualTask]:
        match self.value() or OPEN:
            case "all":
                return queryset
            case ManualTask.State.OPEN:
                return cast("ManualTaskQuerySet", queryset).open()
            case state:
                return queryset.filter(state=state)


class TypeFilter(admin.SimpleListFilter):
    title = "type"
    parameter_name = "task_type"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Iterable[tuple[str, str]]:
        types = ManualTask.objects.open().order_by("task_type").values_list("task_type", flat=True)
        return [(task_type, task_type) for task_type in types.distinct()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[ManualTask]) -> QuerySet[ManualTask]:
        value = self.value()
        return queryset.filter(task_type=value) if value else queryset


@admin.register(ManualTask)
class ManualTaskAdmin(ConsoleAdmin):
    list_display = ("number", "type", "badge", "workflow_number", "due", "age", "decision")
    list_filter = (StateFilter, TypeFilter)
    list_select_related = ("decided_by",)
    page_template = "admin/workflows/manual_task/page.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[ManualTask]:
        return ManualTask.objects.defer("question", "facts")

    def get_ordering(self, request: HttpRequest) -> list[str | Combinable]:
        """Open ones by what is due first; of the others the newest first."""
        return ["expires_at", "id"] if request.GET.get("state", OPEN) == OPEN else ["-id"]

    def get_urls(self) -> list[URLPattern]:
        decide = self.admin_site.admin_view(self.decide_view)
        return [path("<int:row_id>/decide/", decide, name="workflows_manualtask_decide"), *super().get_urls()]

    def page(self, request: HttpRequest, row: ManualTask) -> dict[str, Any]:
        workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=row.workflow_id)
        overdue = row.state == OPEN and row.expires_at <= timezone.now()
        open_to_decide = row.state == OPEN and not overdue and workflow.status == Workflow.Status.PENDING
        decides = open_to_decide and request.user.has_perm(operations.DECIDE)
        return {
            "badge": self.badge(row),
            "type": words.plain(row.task_type),
            "workflow": workflow,
            "workflow_badge": words.badge(workflow.state, State(workflow.state).label),
            "overdue": overdue,
            "open_to_decide": open_to_decide,
            # Facts may be a patient's: for who decides, while there is something to decide.
            "facts": [(label, _fact(value)) for label, value in row.facts] if decides else None,
            "form": dialogue(row).form() if decides else None,
            "dialogue": dialogue(row),
            "decide_url": self.url_of("decide", row),
        }

    def decide_view(self, request: HttpRequest, row_id: int) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not request.user.has_perm(operations.DECIDE):
            raise PermissionDenied
        row = self.visible_row(request, str(row_id))
        put = dialogue(row)
        form = put.form(request.POST)
        if not form.is_valid():
            return self.render(request, self.page_template, row, **{**self.page(request, row), "form": form})
        reason, approved = form.cleaned_data["reason"], form.cleaned_data["decision"] == "approve"
        done = f"Your answer is kept: {(put.approve if approved else put.reject).lower()}."
        if approved:
            answer = form.cleaned_data.get("answer")
            self.carry_out(request, done, operations.approve, row.pk, reason=reason, answer=answer)
        else:
            self.carry_out(request, done, operations.reject, row.pk, reason=reason)
        return HttpResponseRedirect(self.url_of("change", row))

    # --- Columns --------------------------------------------------------------------------------

    @admin.display(description="Number")
    def number(self, row: ManualTask) -> int:
        return row.pk

    @admin.display(description="Type")
    def type(self, row: ManualTask) -> str:
        return words.plain(row.task_type)

    @admin.display(description="State")
    def badge(self, row: ManualTask) -> SafeString:
        return words.badge(row.state, row.get_state_display())

    @admin.display(description="Workflow")
    def workflow_number(self, row: ManualTask) -> int:
        return row.workflow_id

    @admin.display(description="Due")
    def due(self, row: ManualTask) -> str:
        return words.clock(row.expires_at)

    @admin.display(description="Age")
    def age(self, row: ManualTask) -> str:
        return words.age(row.created_at)

    @admin.display(description="Decided by")
    def decision(self, row: ManualTask) -> str:
        return row.decided_by.get_username() if row.decided_by else ""


def _fact(value: Any) -> str:
    match value:
        case None:
            return "not given"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(_fact, value)) or "none"
        case dict():
            return "; ".join(f"{label}: {_fact(part)}" for label, part in value.items())
    return str(value)
