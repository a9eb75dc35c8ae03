"""The people of a test: one answers what is asked, and a second one confirms it where that takes two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.utils import timezone

from workflows import operations
from workflows.effects import UNKNOWN, reconcile, recorded_key
from workflows.engine import undo_doubts
from workflows.errors import NotAllowed
from workflows.models import Confirmation, Effect, ManualTask
from workflows.testing.keys import Keys

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# What `decide` returns for a task: no, yes, or yes with the answer's fields.
Decide = Callable[[ManualTask], bool | Mapping[str, Any]]

ANSWERER, ANOTHER = "testing", "another"
# Older than an account has to be that confirms.
JOINED = timedelta(days=2)


def say_yes(task: ManualTask) -> bool:
    """What is decided where a test does not say. Of a call in doubt it says nothing."""
    return True


def answer(task: ManualTask, decide: Decide, keys: Keys) -> None:
    """Answer an open task, and confirm the answer as a second user if that is needed.

    Raises AssertionError for a reversal that failed, a call of which the test does not know whether it happened, and an
    answer that the console would refuse.
    """
    if task.task_type == undo_doubts.UNDO_TASK_TYPE:
        raise AssertionError(f"{task.question} {dict(task.facts)['The last error']}")
    decision = _of_call(task, decide, keys) if task.task_type == reconcile.DOUBT_TASK_TYPE else decide(task)
    first, second = (ANOTHER, ANSWERER) if task.four_eyes else (ANSWERER, ANOTHER)
    try:
        if _say(task, decision, _user(first)):
            seen = [Confirmation.objects.open().get(task=task).pk]
            operations.confirm(task.pk, user=_user(second), seen=seen, reason="In a test.")
    except NotAllowed as error:
        raise AssertionError(f"{task.question} Nobody could answer {decision!r}: {error}") from None


def _of_call(task: ManualTask, decide: Decide, keys: Keys) -> bool | Mapping[str, Any]:
    """Whether a call happened: as the test has seen it, or as `decide` says if the test cannot know."""
    key = dict(task.facts)["Idempotency key"]
    if key in keys.happened:
        return keys.happened[key]
    unclear = keys.unclear.get(key, "")
    unknown = Effect.objects.filter(workflow=task.workflow_id, state=UNKNOWN)
    if not unclear and key not in [recorded_key(task.workflow, each) for each in unknown]:
        return False
    if decide is say_yes:
        raise AssertionError(
            f"{task.question} The step {unclear or 'ran out of time'}, so it may have made its call, and the test does "
            f"not know. Say in `decide` what a person says whose task.task_type is {task.task_type!r}: False, or the "
            f"fields that the step returns. Or give the step a lookup."
        )
    return decide(task)


def _say(task: ManualTask, decision: bool | Mapping[str, Any], user: User) -> str:
    """Say it. Returns a sentence if a second user has to confirm it."""
    if decision is False:
        return operations.reject(task.pk, user=user, reason="In a test.")
    given = dict(decision) if isinstance(decision, Mapping) else None
    return operations.approve(task.pk, user=user, reason="In a test.", answer=given)


def _user(name: str) -> User:
    users = get_user_model().objects
    able: dict[str, Any] = {"is_superuser": True, "is_staff": True, "date_joined": timezone.now() - JOINED}
    return users.get_or_create(**{users.model.USERNAME_FIELD: name}, defaults=able)[0]
