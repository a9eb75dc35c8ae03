"""TWO PEOPLE: what lets a charge be made again takes a second person, where the definition says so (`two_people`).

| one user says | and a second person confirms it, because |
|---|---|
| of a call that charges, it did not happen, or it was never made | it is made once more |
| of its refund in doubt, try it again | the money may be paid back twice |
| of a charge that was refunded, retry the workflow | the card is charged again |
| of a step that this release lacks, go on | the step may be the charge, renamed |
| that the charge was made by hand (`features.by_hand`) | the books have no other word for that money |

What the first one says is kept as a `Confirmation`, and nothing happens. The second one sees the same page, and
confirms it or not; only a confirmation carries it out. That it happened, or that it stays as it is, takes one person:
it moves no money. If nobody else may confirm it, a lead confirms their own answer after eight hours, and another user
reviews that. The database holds that they are two (migration 0021).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.db.models import F, Min, Q, QuerySet, Subquery, Value
from django.utils import timezone

from workflows import times
from workflows.charges import moves_money
from workflows.definition import definitions
from workflows.effects import IN_DOUBT
from workflows.effects.reconcile import DOUBT_TASK_TYPE, effect_in_question
from workflows.engine import undo_doubts, undo_question
from workflows.errors import NotAllowed
from workflows.models import Confirmation, Effect, Event, ManualTask, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.confirmation import ALONE_AFTER
from workflows.models.deputy import Deputy, count_as_one
from workflows.models.manual_task import PERMISSION_BACKEND, able_to_decide
from workflows.operations import payments
from workflows.operations.guards import CANCEL_PAID, RESOLVE, RETRY, record_event, stated, why_not_second
from workflows.waits.declared import UNDECLARED_TASK_TYPE

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The minimum age of the second account: nobody makes one just for this.
YOUNGEST = timedelta(hours=24)
TOO_NEW = "the accounts of those who could are less than a day old"
RETRIED, BY_HAND = "retry", "by_hand"
ASKED = "Nothing happens yet: another user has to confirm it."
GONE = "Nobody asks for that any more, or somebody has decided it: look at it again."
State = Confirmation.State


# --- Whether it takes two ------------------------------------------------------------------------------


def takes_two(workflow_type: str, step: str = "") -> bool:
    """Whether it takes two people to have this step's call made again; any call that charges, without a step.

    Of a type that this release does not know, any call may be a charge that takes two.
    """
    definition = definitions().get(workflow_type)
    return definition is None or (definition.two_people and (not step or moves_money(definition, step)))


def is_needed(task: ManualTask, decision: str, said: Mapping[str, Any] | None) -> bool:
    """Whether this answer lets a charge be made again, where that takes two people."""
    approved, workflow_type = decision == ManualTask.State.APPROVED, task.workflow.workflow_type
    match task.task_type:
        case t if t == DOUBT_TASK_TYPE:
            return not approved and takes_two(workflow_type, effect_in_question(task.wait.name)[0])
        case t if t == UNDECLARED_TASK_TYPE:
            return approved and takes_two(workflow_type)
        case t if t == undo_question.TASK_TYPE:
            return bool(approved and (said or {}).get("retry") and is_needed_to_retry(task.workflow_id))
        case t if t == undo_doubts.UNDO_TASK_TYPE:
            step, generation = effect_in_question(task.wait.name)
            if approved:
                return (said or {}).get("never_happened") is True and takes_two(workflow_type, step)
            return takes_two(workflow_type, step) and _is_undo_in_doubt(task, step, generation)
    return False


def _is_undo_in_doubt(task: ManualTask, step: str, generation: int) -> bool:
    undos = Effect.objects.filter(workflow=task.workflow_id, step=step, generation=generation, undo=True)
    return undos.filter(state__in=IN_DOUBT).exists()


def is_needed_to_retry(*workflow_ids: int) -> set[int]:
    """Those of these workflows whose retry charges again what was refunded, where that takes two people."""
    found = payments.charged_again(*workflow_ids)
    rows = Workflow.objects.filter(pk__in={each.workflow_id for each in found})
    types = dict(rows.values_list("pk", "workflow_type")) if found else {}
    return {each.root for each in found if takes_two(types.get(each.workflow_id, ""))}


# --- Asking, and deciding ------------------------------------------------------------------------------


def open_of(workflow_id: int, task_id: int | None = None, decision: str = RETRIED) -> Confirmation | None:
    """What waits for a second person: the answer to this task, or without a task this decision about the workflow."""
    rows = Confirmation.objects.open().filter(_is_about(task_id, decision), workflow=workflow_id)
    # Workers, which carry out bulk operations, may not read passwords: see `management.roles`.
    return rows.select_related("asked_by").defer("asked_by__password").first()


def _is_about(task_id: int | None, decision: str) -> Q:
    return Q(task=task_id) if task_id else Q(task=None, decision=decision)


def who_said_by_hand(workflow_id: int) -> str:
    """Who says that a workflow's call was made by hand, while nobody has confirmed it; empty if nobody does."""
    asked = open_of(workflow_id, decision=BY_HAND)
    return asked.asked_by.get_username() if asked else ""


def said_by_hand(workflow_id: int) -> str:
    """Why nothing else starts a workflow again: somebody says that its call was made by hand. Empty if nobody does."""
    by = who_said_by_hand(workflow_id)
    return by and f"{by} has said that its call was made by hand: confirm that, or do not confirm it."


def ask(
    workflow_id: int,
    *,
    user: User,
    reason: str,
    decision: str,
    task: int | None = None,
    answer: Mapping[str, Any] | None = None,
    is_news: bool = True,
    **told: Any,
) -> str:
    """Keep what `user` says until a second person confirms it; return a sentence. The caller has locked the row.

    `is_news` is False if the second one has said so already, of many at once: the history has no time to give it.
    """
    if asked := open_of(workflow_id, task, decision):
        raise NotAllowed(f"{asked.asked_by.get_username()} has said so since you looked: look at it again.")
    Confirmation.objects.drop(workflow_id)
    Confirmation.objects.create(
        workflow_id=workflow_id,
        task_id=task,
        decision=decision,
        answer=answer,
        reason=stated(reason),
        asked_by=user,
    )
    told |= {"task": task} if task else {}
    if is_news:
        record_event(workflow_id, Event.Kind.CONFIRMATION_ASKED, user, reason=reason, **told)
    return ASKED


def confirm(asked: Confirmation, *, user: User) -> dict[str, Any]:
    """Confirm it in the transaction that carries it out; return what the history says of it. Raises NotAllowed."""
    if refusal := why_not_confirm(asked, user):
        raise NotAllowed(refusal)
    alone = asked.asked_by_id == user.pk
    _decide(asked, State.CONFIRMED, user, alone=alone)
    return {"first": asked.asked_by.get_username(), **({"alone": True} if alone else {})}


def close(asked: Confirmation, *, user: User, reason: str, **told: Any) -> str:
    """Withdraw one's own, or do not confirm a colleague's. Return which, in a sentence."""
    is_own = asked.asked_by_id == user.pk
    _decide(asked, State.WITHDRAWN if is_own else State.REFUSED, user)
    kind = Event.Kind.CONFIRMATION_WITHDRAWN if is_own else Event.Kind.CONFIRMATION_REFUSED
    said_by = {} if is_own else {"first": asked.asked_by.get_username()}
    record_event(asked.workflow_id, kind, user, reason=reason, **told, **said_by)
    return "It is withdrawn." if is_own else "It is not confirmed: nothing happens."


def _decide(asked: Confirmation, state: State, user: User, *, alone: bool = False) -> None:
    # The condition decides a race between two who decide it.
    row = Confirmation.objects.filter(pk=asked.pk, state=State.ASKED)
    if not row.update(state=state, decided_by=user, alone=alone):
        raise NotAllowed(GONE)


def review(workflow_id: int, *, user: User, seen: Collection[int], reason: str) -> None:
    """Record that `user` has looked at what a lead has confirmed alone."""
    asked = (
        Confirmation.objects.unreviewed().select_related("asked_by").filter(workflow=workflow_id, pk__in=seen).first()
    )
    if asked is None:
        raise NotAllowed("It is reviewed already.")
    if refusal := why_not_review(asked, user):
        raise NotAllowed(refusal)
    if not Confirmation.objects.unreviewed().filter(pk=asked.pk).update(reviewed_by=user):
        raise NotAllowed("It is reviewed already.")
    record_event(workflow_id, Event.Kind.REVIEWED, user, reason=reason, first=asked.asked_by.get_username())


def find(seen: Collection[int], workflow_id: int, task_id: int | None = None, decision: str = RETRIED) -> Confirmation:
    """The confirmation that the user was shown, of this task, or of this decision. Raises NotAllowed if none."""
    rows = Confirmation.objects.select_related("asked_by").filter(_is_about(task_id, decision), workflow=workflow_id)
    if task_id is None:
        rows = rows.open()
    found = rows.filter(pk__in=seen).first()
    if found is None:
        raise NotAllowed(GONE)
    return found


def has_confirmed_retry(workflow_id: int) -> bool:
    """Whether the retry of this workflow was confirmed since its end."""
    confirmed = Confirmation.objects.filter(_is_about(None, RETRIED), workflow=workflow_id, state=State.CONFIRMED)
    ended = Workflow.objects.filter(pk=workflow_id).values("completed_at")
    return confirmed.filter(decided_at__gte=Subquery(ended)).exists()


# --- Why not -------------------------------------------------------------------------------------------


def why_not_confirm(asked: Confirmation, user: User) -> str:
    """Why `user`, who may answer or retry it, may not confirm it, in a sentence; empty if they may."""
    if asked.asked_by_id == user.pk:
        return why_not_alone(asked, user)
    if refusal := why_not_second(asked.asked_by, user, asked.asked_at):
        return refusal
    if user.date_joined > timezone.now() - YOUNGEST:
        return "Your account is less than a day old: ask a colleague."
    if not able(asked).filter(pk=user.pk).exists():
        return "You may not say this yourself, so you may not confirm it: ask a support lead."
    if not able(asked).filter(pk=asked.asked_by_id).exists():
        name = asked.asked_by.get_username()
        return f"{name} may not say this any more: do not confirm it, and say it yourself."
    return ""


def why_not_alone(asked: Confirmation, user: User) -> str:
    """Why `user` may not confirm what they have said themselves; empty if nobody else may, and they have waited."""
    there = others(able(asked), asked.asked_by, since=asked.asked_at)
    if there.exists():
        if there.exclude(count_as_one(Value(user.pk), F("pk"), Value(asked.asked_at))).exists():
            return "You have said this yourself: another user confirms it."
        return (
            "You have set yourself who stands in, and so nobody else may confirm it: end that, withdraw what you have "
            "said, and say it again."
        )
    among = others(able(asked), asked.asked_by, since=asked.asked_at, of_any_age=True)
    first = among.aggregate(joined=Min("date_joined"))["joined"]
    if not user.has_perm(CANCEL_PAID):
        if first:
            at = times.minute(first + YOUNGEST)
            return f"You have said this yourself, and nobody else may confirm it before {at}: {TOO_NEW}."
        return "You have said this yourself, and nobody else may confirm it: ask for a second account that may."
    if not Confirmation.objects.filter(pk=asked.pk, asked_at__lte=ClockTimestamp() - ALONE_AFTER).exists():
        at = times.minute(asked.asked_at + ALONE_AFTER)
        so_far = f" before {times.minute(first + YOUNGEST)}: {TOO_NEW}" if first else ""
        return f"Nobody else may confirm it{so_far}. If that stays so, you may confirm it alone from {at} on."
    return ""


def why_not_review(asked: Confirmation, user: User) -> str:
    if asked.decided_by_id == user.pk:
        return "You have confirmed it yourself: another user reviews it."
    return why_not_second(asked.asked_by, user, asked.asked_at)  # who has asked has decided it


def able(asked: Confirmation) -> QuerySet[User]:
    """The users who may say such a thing: those who may decide the task; of a retry, those who may charge again.

    Of a call by hand, those who may say what became of a call, and charge again.
    """
    if asked.task is not None:
        return able_to_decide(asked.task)
    if asked.decision != BY_HAND:
        return able_to_charge_again()
    resolve = get_user_model().objects.with_perm(RESOLVE, backend=PERMISSION_BACKEND)
    return able_to_charge_again().filter(pk__in=resolve.values("pk"))


def able_to_charge_again() -> QuerySet[User]:
    """The users who may charge again what was refunded: active staff with both permissions."""
    users = get_user_model().objects
    both = [users.with_perm(each, backend=PERMISSION_BACKEND).values("pk") for each in (RETRY, CANCEL_PAID)]
    return users.filter(pk__in=both[0], is_staff=True).filter(pk__in=both[1])


def others(among: QuerySet[User], user: User, *, since: datetime, of_any_age: bool = False) -> QuerySet[User]:
    """Those who are another person than `user` for what they did at `since`, and whose accounts are a day old, or
    `of_any_age`. Those whom `user` has linked to themselves, as deputies, count, or anybody could confirm alone.
    """
    email = user.email.strip()
    rows = Deputy.objects.filter(begins_at__lt=F("ends_at"), begins_at__lte=ClockTimestamp(), ends_at__gt=since)
    links = list(rows.exclude(set_by=user.get_username()).values_list("deputy", "absent"))
    one = {user.pk, *(absent for deputy, absent in links if deputy == user.pk)}
    one |= {deputy for deputy, absent in links if absent in one}
    same = Q(pk__in=one) | (Q(email__iexact=email) if email else Q(pk=None))
    found = among.exclude(same)
    return found if of_any_age else found.filter(date_joined__lte=timezone.now() - YOUNGEST)
