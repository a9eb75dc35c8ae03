"""ACTS: what can be proposed by an API key. Each is a verb of the console, with its words, its rules and its operation.

An act is bound to what its row looked like (`seen`): if that has changed, nobody can approve it any more. Of the
questions only plain approvals can be proposed. Whoever answers one about a call has looked at where it can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from json import dumps
from typing import TYPE_CHECKING, Any

from workflows import operations
from workflows.console.dialogues import APPROVAL, answer_form, dialogue_for
from workflows.console.verbs import Verb
from workflows.console.workflow_list import CANCEL, RETRY
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import telling as bulk_telling
from workflows.models import BulkOperation, Confirmation, Event, ManualTask, Proposal, State, Workflow
from workflows.models.clock import microseconds
from workflows.operations.bulk_verbs import verbs
from workflows.operations.task_rules import read_task
from workflows.wording import of_person

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Seen = dict[str, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act on a row of `noun`, for users with one of the permissions that `may` returns.

    `find` reads the row, None if it is gone. `why_not` says why this user may not do it now; `why_not_propose` what
    keeps it from being proposed although its proposer may do it. `carry_out` does what a proposal says in the name of
    the user who approves it, and returns the operation's sentence.
    """

    verb: Proposal.Verb
    noun: str
    may: Callable[[Any], tuple[str, ...]]
    find: Callable[[int], Any]
    seen: Callable[[Any], Seen]
    why_not: Callable[[Any, User], str]
    consequences: Callable[[Any], Iterable[str]]
    carry_out: Callable[[Proposal, User], str | None]
    why_not_propose: Callable[[Any, User], str] = lambda row, user: ""
    is_dangerous: bool = False

    def is_for(self, row: Any, user: User) -> bool:
        return any(map(user.has_perm, self.may(row)))

    def named(self, row_id: int) -> str:
        """The act as people read it: `retry workflow 12`."""
        return f"{self.verb.label.lower()} {self.noun} {row_id}"


def version_of(seen: Mapping[str, Any]) -> str:
    """What a client sends back to say which state it has seen."""
    return sha256(dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


# --- A workflow -----------------------------------------------------------------------------------------


def find_workflow(workflow_id: int) -> Workflow | None:
    return Workflow.objects.with_state().defer("payload", "context").filter(pk=workflow_id).first()


def seen_of_workflow(row: Workflow) -> Seen:
    """What the pages of its verbs show, and which time somebody has let it run again."""
    again = Event.objects.filter(workflow=row.pk, kind__in=Event.RUN_AGAIN).order_by("-id").values_list("pk", flat=True)
    return {"run": list(again[:1]), **{name: list(ids(row)) for name, ids in (*RETRY.seen, *CANCEL.seen)}}


def _of_workflow(verb: Verb, name: Proposal.Verb) -> Act:
    assert isinstance(verb.permission, str)
    permission = verb.permission

    def why_not(row: Workflow, user: User) -> str:
        if verb.applies(row):
            return operations.why_emptied(row) or verb.why_not(row, user)
        return operations.why_emptied(row) or f"It is {State(row.state).label.lower()}: there is nothing to {name}."

    def carry_out(asked: Proposal, user: User) -> str | None:
        seen = {each: asked.seen[each] for each, _ in verb.seen}
        done: str | None = verb.operation(asked.row, user=user, reason=asked.reason, **seen)
        return done or verb.done

    return Act(
        verb=name,
        noun="workflow",
        may=lambda row: (permission,),
        find=find_workflow,
        seen=seen_of_workflow,
        why_not=why_not,
        consequences=verb.consequences,
        carry_out=carry_out,
        is_dangerous=verb.dangerous,
    )


# --- A task ---------------------------------------------------------------------------------------------


def find_task(task_id: int) -> ManualTask | None:
    try:
        return read_task(task_id)
    except NotAllowed:
        return None


def seen_of_task(row: ManualTask) -> Seen:
    said = Confirmation.objects.filter(workflow=row.workflow_id, task=row.pk, state="asked")
    return {"created": [microseconds(row.created_at)], "said": list(said.values_list("pk", flat=True))}


def _why_not_propose(row: ManualTask, user: User) -> str:
    if dialogue_for(row) is not APPROVAL or answer_form(row) is not None:
        return "This question is answered in the console, by somebody who has looked at what it is about."
    if row.assignee:
        return f"It is assigned to {row.assignee.get_username()}: unassign it, so that another user can decide it."
    return ""


def _of_task(name: Proposal.Verb, operation: Callable[..., str]) -> Act:
    return Act(
        verb=name,
        noun="task",
        may=lambda row: operations.MAY_DECIDE,
        find=find_task,
        seen=seen_of_task,
        why_not=operations.why_not_decide,
        why_not_propose=_why_not_propose,
        consequences=lambda row: [dialogue_for(row).consequences],
        carry_out=lambda asked, user: operation(asked.row, user=user, reason=asked.reason),
        is_dangerous=name == Proposal.Verb.REJECT,
    )


# --- A bulk operation -----------------------------------------------------------------------------------


def find_bulk(bulk_id: int) -> BulkOperation | None:
    return BulkOperation.objects.select_related("asked_by").filter(pk=bulk_id, verb__in=verbs()).first()


def _why_not_bulk(row: BulkOperation, user: User) -> str:
    if row.state != BulkOperation.State.DRAFT:
        return f"That cannot be done now: it is {BulkOperation.State(row.state).label.lower()}."
    if bulk.charged_again_by(row, row.asked_by):
        return of_person(
            "Patients are charged again, and that takes two people who have looked: it is asked for in the console."
        )
    if row.asked_by_id == user.pk:
        return bulk_telling.why_not_start(row, user)
    return bulk.why_not_approve(row, user)


def _start(asked: Proposal, user: User) -> str:
    """Start it as its proposer would, who needs approval in any case, and approve it."""
    row = BulkOperation.objects.only("verb").get(pk=asked.row)
    pace = bulk.usual_pace(row.verb)
    bulk.start(asked.row, user=asked.asked_by, reason=asked.reason, pace=pace, four_eyes=True)
    return bulk.approve(asked.row, user=user)


ACTS = {
    each.verb: each
    for each in (
        _of_workflow(RETRY, Proposal.Verb.RETRY),
        _of_workflow(CANCEL, Proposal.Verb.CANCEL),
        _of_task(Proposal.Verb.APPROVE, operations.approve),
        _of_task(Proposal.Verb.REJECT, operations.reject),
        Act(
            verb=Proposal.Verb.BULK,
            noun="bulk operation",
            may=lambda row: (verbs()[row.verb].permission,),
            find=find_bulk,
            seen=lambda row: {"chosen": [microseconds(row.asked_at), row.selected]},
            why_not=_why_not_bulk,
            consequences=lambda row: bulk_telling.of_items(row, row.asked_by),
            carry_out=_start,
        ),
    )
}
