"""Manual tasks: the questions that wait for a decision, their deadlines, and the decision."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast
from urllib.parse import quote as urlquote

from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from workflows import operations
from workflows.console import acknowledging, choosing, confirming, needs_a_person, next_task
from workflows.console.answer_form import YesForm
from workflows.console.base import ConsoleAdmin
from workflows.console.dialogues import APPROVAL, ON_EXPIRY, DecisionForm, answer_form, dialogue_for
from workflows.console.needs_a_person_rows import is_overdue, is_stranded
from workflows.console.paging import is_number
from workflows.console.task_verbs import ASK_LEAD, ASSIGN, RETRACT
from workflows.definition import definitions, value_at, wording_of_type
from workflows.effects.reconcile import DOUBT_TASK_TYPE, effect_in_question
from workflows.engine.undo_doubts import UNDO_TASK_TYPE
from workflows.errors import NotAllowed
from workflows.health.for_whom import SEE_WORKFLOWS
from workflows.models import Effect, Event, ManualTask, Workflow
from workflows.models.manual_task import OPERATIONS
from workflows.operations import payments, undoing
from workflows.operations.answers import reason_for_history
from workflows.telling import family, patient, words
from workflows.telling.money import money_line
from workflows.wording import words_for_step

OPEN = ManualTask.State.OPEN
# The tag of a message about a decision that can be undone; the task's number follows.
UNDO = "undo-"
# So long after a decision its page looks again by itself: a worker takes the workflow up when no undo is left.
SETTLES = timedelta(seconds=undoing.UNDO_FOR + 20)
UNDOABLE = f"You can undo it for {undoing.UNDO_FOR} seconds, unless it is about to expire."


@admin.register(ManualTask)
class ManualTaskAdmin(ConsoleAdmin):
    page_template = "admin/workflows/manual_task/page.html"
    list_title = needs_a_person.TITLE
    identity = ("created_at",)
    verbs = (RETRACT, *confirming.VERBS, ASSIGN, ASK_LEAD)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ManualTask]:
        return ManualTask.objects.by_the_clock().with_claims().defer("question", "facts")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if request.method == "POST":
            return self._choose(request)
        return needs_a_person.view(request, site=self.admin_site)

    def _choose(self, request: HttpRequest) -> HttpResponse:
        """Choose tasks to assign: the ticked ones, or all that match the filters."""
        if not (self.has_view_permission(request) and request.user.has_perm(operations.ASSIGN)):
            raise PermissionDenied
        if choosing.ALL in request.POST:
            ids, chosen_by = needs_a_person.all_tasks(request)
        else:
            ticked = request.POST.getlist("task")
            if not all(map(is_number, ticked)):
                raise BadRequest("What is ticked is not a task.")
            ids, chosen_by = ManualTask.objects.filter(pk__in=ticked).order_by().values("pk"), choosing.TICKED
        return choosing.choose(self, request, "assign", ids, chosen_by)

    def get_urls(self) -> list[URLPattern]:
        pages: list[tuple[str, Callable[..., HttpResponse]]] = [
            ("decide", self.decide_view),
            ("claim", self.claim_view),
            ("release", self.release_view),
            ("undo", self.undo_view),
        ]
        return [
            path(
                f"<int:row_id>/{slug}/",
                self.admin_site.admin_view(require_POST(self.of_its_row(view))),
                name=f"workflows_manualtask_{slug}",
            )
            for slug, view in pages
        ] + super().get_urls()

    def tags_of(self, request: HttpRequest, row_id: Any) -> str:
        return f"{UNDO}{row_id}" if undoing.seconds_left(row_id, cast("User", request.user)) else ""

    def workflow_of(self, row: ManualTask) -> int:
        return row.workflow_id

    def page(self, request: HttpRequest, row: ManualTask) -> dict[str, Any]:
        assert request.user.is_authenticated
        row.workflow = Workflow.objects.with_state().defer("payload", "context").get(pk=row.workflow_id)
        late = row.state == OPEN and row.is_over
        open_to_decide = row.state == OPEN and not late and row.workflow.status == Workflow.Status.PENDING
        may = open_to_decide and _may_decide(request.user)
        assigns = open_to_decide and request.user.has_perm(operations.ASSIGN)
        refusal = operations.why_not_decide(row, request.user) if may else ""
        decides = may and not refusal
        following = next_task.after(request, row) if decides and dialogue_for(row) is APPROVAL else None
        sees_facts = decides or _could_have_decided(row, request.user)
        left = undoing.seconds_left(row.pk, request.user)
        asks_lead = open_to_decide and ASK_LEAD.is_for(request.user)

        def url_if(offered: bool, page: str) -> str:
            return self.url_of(page, row) if offered else ""

        return {
            "badge": words.task_badge(row),
            "type": words.task_type(row.task_type),
            "workflow": row.workflow,
            "changed_since": family.changed_since(row.workflow) if open_to_decide else "",
            "workflow_badge": words.state_badge(row.workflow),
            "late": late,
            "open_to_decide": open_to_decide,
            "nobody_decides": operations.why_nobody_decides(row) if open_to_decide else "",
            "stranded": open_to_decide and is_stranded(row),
            "overdue": open_to_decide and is_overdue(row),
            "overdue_badge": words.badge("overdue", "Overdue"),
            "on_expiry": ON_EXPIRY.get(row.on_expiry, dialogue_for(row).expired),
            "refusal": refusal,
            "claim_url": url_if(may and not operations.why_not_claim(row, request.user), "claim"),
            "assign_url": url_if((may or assigns) and not operations.why_not_assign(row, request.user), "assign"),
            "release_url": url_if((may or assigns) and not operations.why_not_release(row, request.user), "release"),
            "ask_lead_url": url_if(asks_lead and not (assigns or row.lead_asked_at), "ask_lead"),
            # Facts may contain patient data, and the reason what they say: see `_could_have_decided`.
            "facts": [(label, words.value(value)) for label, value in row.facts] if sees_facts else None,
            "reason": row.reason if sees_facts else reason_for_history(row, row.reason),
            **(self._forms(row) if decides else {}),
            **(_retry(row, request.user) if decides else {}),
            # Answers about calls are looked up one by one, so no next task is offered.
            "next": following,
            "skip_url": self.url_of("change", following.first) + next_task.query(request) if following else "",
            "next_url": self.url_of("decide", row) + next_task.query(request, next="1"),
            "undo_url": url_if(left > 0, "undo"),
            "undo_for": round(left * 1000),
            "is_settling": row.decided_at is not None and timezone.now() - row.decided_at < SETTLES,
            "final": UNDOABLE if row.undoable else dialogue_for(row).final,
            **_answer(row),
            **(_of_workflow(row) if request.user.has_perm(SEE_WORKFLOWS) else {}),
            "handed_over": _handed_over(row),
            **_where(row),
            **confirming.ticket(row),
            "dialogue": dialogue_for(row),
            "decide_url": self.url_of("decide", row) + next_task.query(request),
        }

    def _forms(self, row: ManualTask) -> dict[str, Any]:
        form = DecisionForm(dialogue_for(row))
        try:
            return {"form": form, "answer": answer_form(row)}
        except NotAllowed as refusal:
            return {"form": form, "no_yes": str(refusal)}

    def decide_view(self, request: HttpRequest, row_id: int) -> HttpResponse:
        row = self._row_to_change(request, row_id)
        form = DecisionForm(dialogue_for(row), request.POST)
        sound = form.is_valid()
        approved = form.cleaned_data.get("decision") == "approve"
        try:
            answer = answer_form(row, request.POST, asked=approved)
        except NotAllowed:
            answer = None  # the operation refuses it, with the reason
        sound = sound and (answer is None or answer.is_valid())
        if sound and self._decide(request, row, form, answer):
            return HttpResponseRedirect(self._url_after(request, row))
        # Show the typed text again, unless nothing is left to decide.
        row = self.visible_row(request, str(row_id))
        shown = self.page(request, row)
        typed = {"form": form, "answer": answer} if "form" in shown else {}
        return self.render(request, self.page_template, row, **{**shown, **typed})

    def _url_after(self, request: HttpRequest, row: ManualTask) -> str:
        """The address after a decision: the same task, or the next one if the user asked for that."""
        if not request.GET.get("next"):
            return self.url_of("change", row) + next_task.query(request)
        if following := next_task.after(request, row):
            return self.url_of("change", following.first) + next_task.query(request)
        self.message_user(request, "There is no other task of this type that you may decide.")
        shown = next_task.filters(request).urlencode()
        return reverse("admin:workflows_manualtask_changelist") + (f"?{shown}" if shown else "")

    def _decide(self, request: HttpRequest, row: ManualTask, form: DecisionForm, answer: YesForm | None) -> bool:
        texts, reason, decision = dialogue_for(row), form.cleaned_data["reason"], form.cleaned_data["decision"]
        told = {"approve": texts.approve, "reject": texts.reject, "retry": texts.retry}
        done = f"Your answer is kept: {told[decision].lower()}."
        if texts is APPROVAL:
            done = f"{'Rejected' if decision == 'reject' else 'Approved'}: {_named(row, request.user)}."
        if decision == "reject":
            return self.carry_out(request, done, undoing.reject, row.pk, reason=reason)
        said = {"retry": True} if decision == "retry" else answer.answer if answer else None
        return self.carry_out(request, done, undoing.approve, row.pk, reason=reason, answer=said)

    def claim_view(self, request: HttpRequest, row_id: int) -> HttpResponse:
        row = self._row_to_change(request, row_id)
        self.carry_out(request, "It is yours.", operations.claim_task, row.pk)
        return HttpResponseRedirect(self.url_of("change", row))

    def release_view(self, request: HttpRequest, row_id: int) -> HttpResponse:
        if not (request.user.has_perm(operations.ASSIGN) or _may_decide(request.user)):
            raise PermissionDenied
        row = self.visible_row(request, str(row_id))  # users may give back their own tasks even if they may not decide
        self.carry_out(request, "It is unassigned.", operations.release_task, row.pk)
        return HttpResponseRedirect(self.url_of("change", row))

    def undo_view(self, request: HttpRequest, row_id: int) -> HttpResponse:
        row = self._row_to_change(request, row_id)
        self.carry_out(request, "It is open again.", undoing.undo, row.pk)
        return HttpResponseRedirect(self.url_of("change", row))

    def _row_to_change(self, request: HttpRequest, row_id: int) -> ManualTask:
        if not _may_decide(request.user):
            raise PermissionDenied
        row: ManualTask = self.visible_row(request, str(row_id))
        if row.team != OPERATIONS and not request.user.has_perm(operations.DECIDE):
            raise PermissionDenied
        return row


def _named(row: ManualTask, user: Any) -> str:
    """The task, and the masked patient for users who may see workflows."""
    whom = patient.masked([row.workflow_id]).get(row.workflow_id, "") if user.has_perm(SEE_WORKFLOWS) else ""
    return ", ".join(filter(None, (f"task {row.pk}", whom)))


def _retry(row: ManualTask, user: User) -> dict[str, str]:
    """The third button, if a retry may help and this user may do it, and what the retry would charge again."""
    if not dialogue_for(row).retry or not operations.may_retry(row) or operations.why_not_retry_instead(row, user):
        return {}
    again = payments.charged_again(row.workflow_id)
    return {"retry": dialogue_for(row).retry, "charged_again": payments.sum_of(again) if again else ""}


def _of_workflow(row: ManualTask) -> dict[str, str]:
    """Whom it is about, masked, and the money."""
    effects = Effect.objects.filter(workflow=row.workflow_id).defer("error_message").order_by("id")
    payload = Workflow.objects.values_list("payload", flat=True).get(pk=row.workflow_id)
    definition = definitions().get(row.workflow.workflow_type)
    first = definition.wording.caller[:1] if definition else ()
    about = patient.masked_by(row.workflow.workflow_type, value_at(payload, first[0].path)) if first else ""
    by = acknowledging.claimed_by(row.workflow)
    return {"about": about, "money": money_line(row.workflow, definition, payload, list(effects), claimed_by=by)}


def _handed_over(row: ManualTask) -> Event | None:
    """The event in which somebody last assigned it, or asked a lead, with the note."""
    kind = Event.Kind.LEAD_ASKED if row.lead_asked_at else Event.Kind.TASK_ASSIGNED
    given = Event.objects.filter(workflow=row.workflow_id, kind=kind, detail__task=row.pk)
    return given.order_by("-id").first() if row.assignee or row.lead_asked_at else None


def _where(row: ManualTask) -> dict[str, str]:
    """Where to check whether an unclear call happened, or was reversed, and the address of a search there."""
    if row.task_type not in (DOUBT_TASK_TYPE, UNDO_TASK_TYPE):
        return {}
    step, generation = effect_in_question(row.wait.name)
    told = words_for_step(wording_of_type(row.workflow.workflow_type), step)
    call = Effect.objects.filter(workflow=row.workflow_id, step=step, generation=generation, undo=False).first()
    url = told.search.replace("{key}", urlquote(call.idempotency_key)) if call else ""
    by_default = f"In the service that {told.titled} calls, or by asking there: name the idempotency key, and when."
    return {"where": told.where or by_default, "search_url": url}


def _answer(row: ManualTask) -> dict[str, Any]:
    """For whom a deputy decided, and the answer by the history, if the question was about a call or its undo."""
    if row.decided_at is None:
        return {}
    events = Event.objects.filter(workflow=row.workflow_id, detail__task=row.pk).order_by("id")
    by_kind = {event.kind: event for event in events}
    taken_back = by_kind.get(Event.Kind.RETRACTED)
    if not (decision := by_kind.get(Event.Kind.APPROVED) or by_kind.get(Event.Kind.REJECTED)):
        return {}
    deputy_for = {"deputy_for": decision.detail.get("deputy_for", "")}
    if dialogue_for(row) is APPROVAL:
        return deputy_for
    said = words.SAID.get(decision.detail.get("said", ""), decision.get_kind_display())
    fields = words.answered(decision.detail, wording_of_type(row.workflow.workflow_type))
    return {"said": ": ".join(filter(None, (said, fields))), "taken_back": taken_back, **deputy_for}


def _could_have_decided(row: ManualTask, user: User) -> bool:
    """Whether the task was decided, and this user had the right to decide it: they may see the facts."""
    if row.decided_at is None or not _may_decide(user):
        return False
    same = ManualTask.objects.filter(pk=row.pk)
    return same.permitted_to(user).for_members(user).for_other_eyes(user).exists()


def _may_decide(user: Any) -> bool:
    return any(map(user.has_perm, operations.MAY_DECIDE))
