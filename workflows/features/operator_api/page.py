"""The pages of proposals: what an API key asks for, what would happen, and the buttons to approve it or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from workflows import operations
from workflows.console import links
from workflows.console.base import ConsoleAdmin, time_column
from workflows.console.home import First
from workflows.console.verbs import OptionalReasonForm, Verb, read_once
from workflows.extension import Note
from workflows.features.operator_api import proposals
from workflows.features.operator_api.acts import ACTS, Act
from workflows.health.for_whom import SEE_TASKS, SEE_WORKFLOWS
from workflows.models import Proposal, Workflow
from workflows.operations.bulk_verbs import verbs
from workflows.telling import patient, words

SHOWN = 50
State = Proposal.State


def _act(row: Proposal) -> Act:
    return ACTS[Proposal.Verb(row.verb)]


def name_of(row: Proposal) -> str:
    return _act(row).named(row.row)


def sentence(row: Proposal) -> str:
    """Who proposes what, and why."""
    who = f"The API key {row.api_key.name} of {row.asked_by.get_username()}"
    return f"{who} proposes to {name_of(row)}: {words.ended(row.reason)}"


def _consequences(row: Proposal) -> Iterator[str]:
    yield sentence(row)
    yield "It is done in your name; the history names the proposer, too. Check it as if it were your own idea."
    target = _act(row).find(row.row)
    yield from _act(row).consequences(target) if target is not None else ()


def _may_decide() -> tuple[str, ...]:
    of_bulk = {verb.permission for verb in verbs().values()}
    return (operations.RETRY, operations.CANCEL, *operations.MAY_DECIDE, *sorted(of_bulk))


class _Verb(Verb):
    """A verb for every user who may do at least one thing that can be proposed, or who has proposed it."""

    def is_for(self, user: Any) -> bool:
        return any(map(user.has_perm, _may_decide()))


def _ids(row: Proposal) -> list[int]:
    return [row.pk] if row.state == State.ASKED else []


APPROVE = _Verb(
    slug="approve",
    main=True,
    label="Approve",
    permission=(),
    operation=proposals.approve,
    applies=lambda row: row.state == State.ASKED,
    why_not=proposals.why_not_approve,
    consequences=_consequences,
    seen=(("seen", _ids),),
    form=OptionalReasonForm,
    asks="Approve the proposal to {}",
    done="It is done.",
)
REFUSE = _Verb(
    slug="refuse",
    label="Do not approve",
    permission=(),
    operation=proposals.close,
    applies=lambda row: row.state == State.ASKED,
    why_not=proposals.why_not_close,
    consequences=lambda row: [
        sentence(row),
        "Nothing happens to it. If the proposal is your own, it is withdrawn. It can be proposed again.",
    ],
    seen=APPROVE.seen,
    asks="Refuse the proposal to {}",
    done="Nothing happens.",
)


@admin.register(Proposal)
class ProposalAdmin(ConsoleAdmin):
    list_display = ("number", "what", "badge", "by", "key", "asked", "why")
    ordering = ("-id",)
    page_template = "admin/workflows/operator_api/proposal.html"
    identity = ("asked_at",)
    verbs = (APPROVE, REFUSE)
    asked = time_column("Proposed", "asked_at")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return any(map(request.user.has_perm, (SEE_WORKFLOWS, SEE_TASKS)))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Proposal]:
        rows = Proposal.objects.select_related("asked_by", "decided_by", "api_key")
        if request.user.has_perm(SEE_TASKS) and not request.user.has_perm(SEE_WORKFLOWS):
            return rows.filter(verb__in=("approve", "reject"))
        return rows  # whoever sees neither is refused

    def name_of(self, row: Proposal) -> str:
        return name_of(row)

    def workflow_of(self, row: Proposal) -> int | None:
        return row.workflow_id

    def render(self, request: HttpRequest, template: str, row: Any, **context: Any) -> TemplateResponse:
        if context.get("verb") == APPROVE and _act(row).is_dangerous:
            context["verb"] = replace(context["verb"], dangerous=True)
        if context.get("verb"):
            told = [f"{label}: {value}" for label, value in _facts_of_task(row, request.user)]
            context["consequences"] = [*context["consequences"], *told]
        return super().render(request, template, row, **context)

    def page(self, request: HttpRequest, row: Proposal) -> dict[str, Any]:
        by = row.decided_by.get_username() if row.decided_by else ""
        decided = f"{by or 'A worker'}, at {words.clock(row.decided_at)}" if row.decided_at else ""
        whom = patient.masked([row.workflow_id]).get(row.workflow_id, "") if row.workflow_id else ""
        facts = [
            ("About", whom if request.user.has_perm(SEE_WORKFLOWS) else ""),
            ("Proposed by", f"{row.asked_by.get_username()}, with the API key {row.api_key.name}"),
            ("Why", row.reason),
            ("Proposed at", words.clock(row.asked_at)),
            ("Lapses at", words.clock(row.lapses_at) if row.state == State.ASKED else ""),
            ("Decided by", decided),
            ("Reason of the decision", proposals.why_closed(row)),
        ]
        is_open = row.state == State.ASKED and not proposals.why_over(row)
        target = _act(row).find(row.row) if is_open else None
        return {
            "title": f"Proposal to {name_of(row)}",
            "badge": self.badge(row),
            "facts": facts,
            "url": _url_of(row),
            "url_label": f"{_act(row).noun.capitalize()} {row.row}",
            "consequences": list(_act(row).consequences(target)) if target is not None else [],
            "task_facts": _facts_of_task(row, request.user),
        }

    # --- Columns --------------------------------------------------------------------------------

    @admin.display(description="What")
    def what(self, row: Proposal) -> str:
        return name_of(row).capitalize()

    @admin.display(description="State")
    def badge(self, row: Proposal) -> SafeString:
        tone = {State.ASKED: "waiting", State.APPROVED: "complete"}.get(State(row.state), "cancelled")
        return words.badge(tone, row.get_state_display())

    @admin.display(description="Proposed by")
    def by(self, row: Proposal) -> str:
        return row.asked_by.get_username()

    @admin.display(description="API key")
    def key(self, row: Proposal) -> str:
        return row.api_key.name

    @admin.display(description="Reason")
    def why(self, row: Proposal) -> str:
        return words.cut(row.reason)


def _facts_of_task(row: Proposal, user: Any) -> list[tuple[str, str]]:
    """The task's question and facts, for users who may decide it: only they see them on its page, too."""
    if row.state != State.ASKED or row.verb not in (Proposal.Verb.APPROVE, Proposal.Verb.REJECT):
        return []
    task = operations.decidable(user).filter(pk=row.row).first()
    return [("Question", task.question), *((label, words.value(value)) for label, value in task.facts)] if task else []


def _url_of(row: Proposal) -> str:
    match row.verb:
        case Proposal.Verb.APPROVE | Proposal.Verb.REJECT:
            return links.task(row.row)
        case Proposal.Verb.BULK:
            return links.bulk_operation(row.row)
    return links.workflow(row.row)


def url(proposal_id: int) -> str:
    return reverse("admin:workflows_proposal_change", args=[proposal_id])


# --- On other pages -------------------------------------------------------------------------------------


def shown(user: User) -> QuerySet[Proposal]:
    return proposals.to_approve(user)[:SHOWN]


def first_lines(user: User) -> Sequence[First]:
    """The proposals that wait for this user, as lines on Home."""
    whose = "Second person"
    return [First(sentence(row), url(row.pk), whose, words.age_of(row.asked_at)) for row in shown(user)]


def notes(workflow: Workflow) -> Iterable[Note]:
    """What is proposed for a workflow, or for its tasks."""

    def read() -> list[Proposal]:
        rows = Proposal.objects.open().filter(workflow=workflow.pk).order_by("id")
        return list(rows.select_related("asked_by", "api_key")[:SHOWN])

    for row in read_once(workflow, "proposals", read):
        yield Note(f"{sentence(row)} Another user has to approve it.", url=url(row.pk), label="The proposal")
