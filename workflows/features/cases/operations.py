"""What people may do with a case besides its workflow's own operations: write notes, take an acknowledgement back."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Now

from workflows.errors import NotAllowed
from workflows.models import Access, CaseNote, Event, FollowUp, ManualTask, Workflow
from workflows.models.clock import ClockTimestamp, microseconds
from workflows.models.manual_task import PERMISSION_BACKEND
from workflows.operations import MAY_DECIDE
from workflows.operations.guards import (
    ACKNOWLEDGE,
    ASSIGN,
    lock_workflow,
    record_event,
    require,
    require_reason,
    short_transaction,
    stated,
    why_emptied,
)
from workflows.signals.waking import Slice
from workflows.telling import words

if TYPE_CHECKING:
    from django.contrib.auth.models import User

MAY_NOTE = (ACKNOWLEDGE, *MAY_DECIDE)
MOST_CHARACTERS = 2000
# After that nobody waits for the answer.
ANSWERS_SHOWN_FOR = timedelta(days=14)
DECISIONS = (Event.Kind.APPROVED, Event.Kind.REJECTED)
# What people do without seeing to a case: whoever pauses it may wait for the lead. A proposal is a program's, and what
# ends it without an approval changes nothing.
NO_ACTS = (
    *(Event.Kind.NOTED, Event.Kind.LEAD_ASKED, Event.Kind.TEAM_ASKED),
    Event.Kind.DECISION_UNDONE,
    *(Event.Kind.PAUSE_ASKED, Event.Kind.PAUSED, Event.Kind.RESUMED),
    *(Event.Kind.PROPOSED, Event.Kind.PROPOSAL_REFUSED, Event.Kind.PROPOSAL_WITHDRAWN, Event.Kind.PROPOSAL_LAPSED),
)


def add_note(workflow_id: int, *, user: User, reason: str, form: UUID | None = None) -> None:
    """Store a note on a workflow in any state. `reason` is its text; the history has only who wrote it, and when.

    `form` identifies the form that was sent: the same text from it again stores nothing.
    """
    _add(workflow_id, Event.Kind.NOTED, user=user, reason=reason, form=form)


def ask_lead(workflow_id: int, *, user: User, reason: str, form: UUID | None = None) -> None:
    """Store a note that asks a support lead to see to a workflow, as `add_note` does.

    “For you” lists it until a lead has seen to it, somebody acts on the workflow, or it completes.
    """
    _add(workflow_id, Event.Kind.LEAD_ASKED, user=user, reason=reason, form=form)


def hand_to_team(workflow_id: int, *, user: User, team: str, reason: str, form: UUID | None = None) -> str:
    """Store a note that hands a workflow to a team, as `ask_lead` does; return a sentence. An earlier team loses it."""
    if team not in teams():
        raise NotAllowed("This is no team of which a member may act on workflows: choose another.")
    _add(workflow_id, Event.Kind.TEAM_ASKED, user=user, reason=reason, form=form, team=team)
    return f"It is handed to the team {words.team(team)}."


def teams() -> list[str]:
    """The groups with a member who may act on cases, in order. Superusers do not count: they are in every team."""
    users = get_user_model().objects
    able = [
        users.with_perm(each, include_superusers=False, backend=PERMISSION_BACKEND).filter(is_staff=True).values("pk")
        for each in MAY_NOTE
    ]
    members = reduce(or_, (Q(user__in=each) for each in able))
    return list(Group.objects.filter(members).order_by("name").distinct().values_list("name", flat=True))


def _add(workflow_id: int, kind: Event.Kind, *, user: User, reason: str, form: UUID | None, team: str = "") -> None:
    require(user, *MAY_NOTE)
    text = stated(reason)
    if not text:
        raise NotAllowed("Write the note: there is no text.")
    if len(text) > MOST_CHARACTERS:
        raise NotAllowed(f"A note has at most {MOST_CHARACTERS:,} characters; this one has {len(text):,}.")
    with short_transaction():
        ended_as = _keep_content(workflow_id)
        note: dict[str, Any] = {"workflow_id": workflow_id, "actor": user.get_username(), "text": text, "team": team}
        if kind != Event.Kind.NOTED:
            if ended_as == Workflow.Status.COMPLETE:
                raise NotAllowed("It is complete by now, and needs nobody: add a note in place of asking somebody.")
            note["lead_asked_at"] = ClockTimestamp()
        key = uuid5(form, text) if form else uuid4()
        _, is_new = CaseNote.objects.get_or_create(form_key=key, defaults=note)
        if not is_new:
            return
        if team:
            handed().filter(workflow=workflow_id).exclude(form_key=key).update(lead_asked_at=None)
        record_event(workflow_id, kind, user, reason="", **({"team": team} if team else {}))


def _keep_content(workflow_id: int) -> str:
    """Lock a workflow that has ended, so that it is not emptied meanwhile; return its status, empty if it has not.

    Raises NotAllowed if it is emptied already.

    While a workflow is under way nothing empties it, and a worker may keep the lock for a whole run.
    """
    rows = Workflow.objects.filter(pk=workflow_id).defer("payload", "context")
    if rows.filter(status=Workflow.Status.PENDING).exists():
        return ""
    workflow = rows.select_for_update(no_key=True).first()
    if workflow is None:
        raise NotAllowed(f"There is no workflow {workflow_id}.")
    if refusal := why_emptied(workflow):
        raise NotAllowed(refusal)
    return workflow.status


def lead_has_seen(workflow_id: int, *, user: User, reason: str, seen: Collection[int]) -> None:
    """A lead has seen to a workflow: “For you” lists it no more. `seen` are the notes that asked."""
    require(user, ASSIGN)
    with short_transaction():
        if not asking().filter(workflow=workflow_id, pk__in=seen).update(lead_asked_at=None):
            raise NotAllowed("No lead is asked any more: somebody has seen to it.")
        record_event(workflow_id, Event.Kind.LEAD_HAS_SEEN, user, reason=reason)


def team_has_seen(workflow_id: int, *, user: User, reason: str, seen: Collection[int]) -> str:
    """A member of the team, or a lead, has seen to a workflow that was handed over. `seen` is the note that did so.

    Returns a sentence. It and the history say so if the lead is not in the team.
    """
    require(user, ASSIGN, *MAY_NOTE)
    with short_transaction():
        notes = handed().select_for_update(no_key=True).filter(workflow=workflow_id, pk__in=seen)
        if (note := notes.first()) is None:
            raise NotAllowed("It is not with that team any more: somebody has seen to it, or handed it on.")
        if why_not := why_not_of_team(note.team, user):
            raise NotAllowed(why_not)
        handed().filter(pk=note.pk).update(lead_asked_at=None)
        is_outside = not user.groups.filter(name=note.team).exists()
        told: dict[str, Any] = {"team": note.team, **({"outside": True} if is_outside else {})}
        record_event(workflow_id, Event.Kind.TEAM_HAS_SEEN, user, reason=reason, **told)
    return f"It is seen to for the team {words.team(note.team)}{', in which you are not' * is_outside}."


def why_not_of_team(team: str, user: User) -> str:
    """Why `user` may not say for the team that it has seen to a workflow; empty if they may."""
    if user.has_perm(ASSIGN) or user.groups.filter(name=team).exists():
        return ""
    return f"It is with the team {words.team(team)}, and you are not in it."


def asked() -> QuerySet[CaseNote]:
    return CaseNote.objects.filter(lead_asked_at__isnull=False)


def asking() -> QuerySet[CaseNote]:
    """The notes that ask a lead, and that nobody has acted upon."""
    return asked().filter(team="")


def answered(user: User) -> QuerySet[Event]:
    """What this user asked a lead for, and another person has acted upon: until the user has looked at the workflow.

    Each has `by` and `answered_at`. By the indexes of events by actor, and of what was looked at by workflow.
    """
    name = user.get_username()
    asked = Event.objects.filter(actor=name, kind=Event.Kind.LEAD_ASKED, at__gt=Now() - ANSWERS_SHOWN_FOR)
    if not asked.exists():  # as for nearly everybody: the rest takes ten times as long to build
        return Event.objects.none()
    acts = Event.objects.filter(workflow=OuterRef("workflow"), id__gt=OuterRef("pk")).exclude(actor__in=["", name])
    act = acts.exclude(kind__in=NO_ACTS).order_by("-id")[:1]
    told = asked.annotate(by=Subquery(act.values("actor")), answered_at=Subquery(act.values("at")))
    looked = Access.objects.filter(workflow=OuterRef("workflow"), actor=name, at__gte=OuterRef("answered_at"))
    return told.filter(answered_at__isnull=False).exclude(Exists(looked)).order_by("-at", "-id")


def handed() -> QuerySet[CaseNote]:
    """The notes that hand a workflow to a team, and that nobody has acted upon."""
    return asked().exclude(team="")


def close_asked(after: int = 0) -> Slice:
    """Maintenance: no lead or team is asked any more once a person has acted on the workflow, or it is complete."""
    acts = Event.objects.filter(workflow=OuterRef("workflow"), at__gt=OuterRef("lead_asked_at"))
    acts = acts.exclude(actor="").exclude(kind__in=NO_ACTS)
    # A decision that was taken back, or may be still, is nothing that a person has done.
    decided = ManualTask.objects.filter(Q(state=ManualTask.State.OPEN) | Q(held__isnull=False), undoable=True)
    its_task = decided.alias(number=Cast("pk", TextField())).filter(
        workflow=OuterRef("workflow"), number=OuterRef("of")
    )
    acts = acts.alias(of=KT("detail__task")).exclude(Exists(its_task), kind__in=DECISIONS)
    over = asked().filter(Exists(acts) | Q(workflow__status=Workflow.Status.COMPLETE))
    return Slice(CaseNote.objects.filter(pk__in=over.values("pk")).update(lead_asked_at=None))


def acknowledged(workflow: Workflow) -> list[int]:
    """The failures of a workflow that somebody has acknowledged, as `failures_left` has those that are left.

    What the engine has acknowledged itself, because it is a duplicate, is not among them.
    """
    match workflow.status:
        case Workflow.Status.FAILED if at := workflow.acknowledged_failure:
            said = Event.objects.filter(workflow=workflow.pk, kind__in=[Event.Kind.ACKNOWLEDGED, Event.Kind.DUPLICATE])
            last = said.order_by("-id").values_list("kind", flat=True).first()
            return [microseconds(at)] if at == workflow.completed_at and last == Event.Kind.ACKNOWLEDGED else []
        case Workflow.Status.COMPLETE:
            return sorted(map(microseconds, _given_up(workflow).values_list("created_at", flat=True)))
    return []


def not_dealt_with(workflow_id: int, *, user: User, reason: str, seen: Collection[int]) -> None:
    """Take back an acknowledgement: the failure, or the deferred steps that were given up, need a person again.

    `seen` are the failures that the user was shown (`acknowledged`).
    """
    require(user, ACKNOWLEDGE)
    require_reason(reason, "what is not dealt with")
    with short_transaction():
        workflow, state = lock_workflow(workflow_id)
        if (found := acknowledged(workflow)) != sorted(seen) or not found:
            raise NotAllowed(f"What you saw as acknowledged is not so any more; this one is {state.label.lower()}.")
        if workflow.status == Workflow.Status.FAILED:
            Workflow.objects.filter(pk=workflow_id).update(acknowledged_failure=None)
            record_event(workflow_id, Event.Kind.NOT_DEALT_WITH, user, step=workflow.current_step, reason=reason)
            return
        given_up = _given_up(workflow)
        steps = list(given_up.values_list("step", flat=True))
        given_up.update(acknowledged_failure=None)
        record_event(workflow_id, Event.Kind.NOT_DEALT_WITH, user, reason=reason, steps=steps)


def _given_up(workflow: Workflow) -> QuerySet[FollowUp]:
    rows = FollowUp.objects.filter(workflow=workflow.pk, due_at=None, acknowledged_failure=F("created_at"))
    return rows.order_by("id")
