"""Who may do what with a manual task now, and why not, in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Q

from workflows import times
from workflows.engine import undo_question
from workflows.errors import NotAllowed
from workflows.models import ManualTask, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.manual_task import OPERATIONS, ManualTaskQuerySet, able_to_decide
from workflows.operations.guards import ASSIGN, DECIDE, RESOLVE, count_as_one_since
from workflows.operations.retrying import why_not_retry

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The refusal if an update changed no row, and the row as read afterwards gives no reason.
CHANGED = "Somebody has changed it just now: look at it again."
OWN_REQUEST = "You requested this yourself, so another user has to decide it (four eyes)."
OF_ONE_PERSON = "You and {}, who requested this, count as one person, as deputies: another user has to decide it."
# One of them is enough. The second is only for tasks of the team `operations`.
MAY_DECIDE = (DECIDE, RESOLVE)


def why_not_claim(task: ManualTask, user: User) -> str:
    """Why `user` cannot claim the task, in a sentence; empty if they can."""
    if not (over := why_over(task)) and task.assignee == user:
        return "It is yours already."
    return over or _why_not_theirs(task, user) or _why_taken(task, user)


def why_not_release(task: ManualTask, user: User) -> str:
    """Why `user` cannot release the task, in a sentence; empty if they can."""
    if not (over := why_over(task)) and task.assignee is None:
        return "Nobody has claimed it."
    if over or user.has_perm(ASSIGN) or task.assignee == user:
        return over
    return _why_taken(task, user) or _why_not_theirs(task, user)


def why_not_assign(task: ManualTask, user: User) -> str:
    """Why `user` cannot assign the task to anybody, in a sentence; empty if they can."""
    if (over := why_over(task)) or user.has_perm(ASSIGN):
        return over
    return _why_not_theirs(task, user) or _why_taken(task, user)


def why_not_decide(task: ManualTask, user: User) -> str:
    """Why `user` cannot decide the task, in a sentence; empty if they can."""
    return why_over(task) or _why_not_theirs(task, user) or _why_taken(task, user)


def why_nobody_decides(task: ManualTask) -> str:
    """Why no user can decide the task, in a sentence; empty if one can. Superusers outside its team do not count."""
    users = able_to_decide(task)
    if task.team:
        users = users.filter(Q(is_superuser=False) | Q(groups__name=task.team))
    if users.exists():
        return ""
    group = "support lead" if task.team == OPERATIONS else "approver"
    whom = f"in the team {task.team} may decide it: its members" if task.team else "may decide it: those who should"
    return (
        f"Nobody {whom} have to be staff, and in the group {group}, too. Ask the person who administers the accounts."
    )


def why_not_retract(task: ManualTask, user: User) -> str:
    """Why `user` cannot retract the answer to the task though others may, in a sentence; empty if they can."""
    return _why_not_theirs(task, user)


def why_not_retry_instead(task: ManualTask, user: User) -> str:
    """Why `user` cannot retry a workflow instead of reversing it, in a sentence; empty if they can."""
    return why_not_retry(task.workflow_id, user) if task.task_type == undo_question.TASK_TYPE else ""


def lock_task(task_id: int) -> None:
    """Lock a task's row. Does not wait for another user who is deciding or claiming it."""
    ManualTask.objects.select_for_update(nowait=True, no_key=True).filter(pk=task_id).values("pk").first()


def read_task(task_id: int) -> ManualTask:
    people = ("assignee", "decided_by", "requested_by")
    rows = ManualTask.objects.by_the_clock().with_claims().select_related("workflow", "wait", *people)
    rows = rows.defer("workflow__payload", "workflow__context", "wait__result")
    # Workers, which carry out bulk operations, may not read passwords: see `management.roles`.
    if task := rows.defer(*(f"{each}__password" for each in people)).filter(pk=task_id).first():
        return task
    raise NotAllowed("There is no such task.")


def undecided(tasks: ManualTaskQuerySet) -> ManualTaskQuerySet:
    return tasks.open().filter(expires_at__gt=ClockTimestamp())


def decidable_by(tasks: ManualTaskQuerySet, user: User) -> ManualTaskQuerySet:
    """The tasks that `user` may decide if no other user has claimed them; the update checks the claim."""
    return allowed_for(undecided(tasks), user)


def allowed_for(tasks: ManualTaskQuerySet, user: User) -> ManualTaskQuerySet:
    return tasks.for_members(user).permitted_to(user).for_other_eyes(user)


def why_over(task: ManualTask) -> str:
    if task.state == ManualTask.State.RETRACTED:
        return "Its answer was retracted; the workflow asks again."
    if task.decided_by and task.decided_at:
        return f"{task.decided_by.get_username()} {task.state} it already, at {times.second(task.decided_at)}."
    if task.state != ManualTask.State.EXPIRED and task.workflow.status != Workflow.Status.PENDING:
        return f"Its workflow has finished; it is {task.workflow.status.lower()}."
    if task.state == ManualTask.State.CLOSED:
        return "Its workflow went on without an answer."
    if task.state == ManualTask.State.EXPIRED or task.is_over:
        return f"It expired at {times.second(task.expires_at)}."
    return ""


def _why_not_theirs(task: ManualTask, user: User) -> str:
    if task.team and not _is_member(user, task.team):
        return f"It is for the team {task.team}, and you are not in it."
    if task.team != OPERATIONS and not user.has_perm(DECIDE):
        return f"You decide what is for the team {OPERATIONS}, and this is not."
    if not task.four_eyes or task.requested_by is None:
        return ""
    if task.requested_by_id == user.pk:
        return OWN_REQUEST
    is_one = count_as_one_since(task.requested_by_id, user.pk, task.created_at)
    return OF_ONE_PERSON.format(task.requested_by.get_username()) if is_one else ""


def _is_member(user: User, team: str) -> bool:
    resolves = team == OPERATIONS and user.has_perm(RESOLVE)
    return resolves or user.is_superuser or user.groups.filter(name=team).exists()


def _why_taken(task: ManualTask, user: User) -> str:
    if task.assignee is None or task.assignee == user or not task.is_held or instead_of(task, user):
        return ""
    return who_has_it(task)


def who_has_it(task: ManualTask) -> str:
    if task.assignee is None:
        return "It is unassigned by now: look at it again."
    name, stands_in = task.assignee.get_username(), f"; {task.stand_in} stands in" if task.stand_in else ""
    if task.claimed_at:
        return f"{name} has claimed it, at {times.second(task.claimed_at)}{stands_in}."
    return f"It is assigned to {name}{stands_in}."


def instead_of(task: ManualTask, user: User) -> dict[str, str]:
    """What the history says if `user` acts as the deputy of the task's assignee; empty if not."""
    if task.assignee is None or task.assignee == user or task.stand_in != user.get_username():
        return {}
    return {"deputy_for": task.assignee.get_username()}
