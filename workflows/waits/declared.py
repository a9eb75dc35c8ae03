"""Waiting for a release that declares what is on record: if it was only renamed, it would be done a second time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from workflows.models import Workflow
from workflows.state import attempt_log
from workflows.waits.approval import URGENT, ask, withdraw
from workflows.waits.time import wait_for_time
from workflows.waits.wait import WaitFailed

# A deploy takes minutes; one that is rolled back takes an hour.
ASK_AFTER = timedelta(hours=1)
LOOK_EVERY = timedelta(minutes=1)
# How long a person has to answer: a month allows for holidays.
TIMEOUT = timedelta(days=30)

UNDECLARED_TASK_TYPE = "step_undeclared"


class Undeclared(WaitFailed):
    """This release does not declare what is on record, and a person said that it should."""


def require_declared(
    workflow: Workflow, name: str, *, waiting_for: str, question: str, facts: Mapping[str, str], should: str
) -> None:
    """Suspend until a release declares it: look every minute, and after an hour also ask a person.

    Returns if a person says that it is right. `name` identifies both waits. Raises Undeclared, with what it `should`
    be, if a person says that it is wrong.
    """
    attempt_log.flush(attempt_log.attempt_of(workflow))
    wait_for_time(workflow, name, ASK_AFTER, look_every=LOOK_EVERY, waiting_for=waiting_for)
    while True:
        answer = ask(
            workflow,
            _asked(name),
            question=question,
            facts=facts,
            task_type=UNDECLARED_TASK_TYPE,
            timeout=TIMEOUT,
            due=URGENT,
            look_every=ASK_AFTER,
        )
        match answer.outcome:
            case "approved":
                return
            case "rejected":
                message = f"{answer.result['by']} said that {should}."
                raise Undeclared(message, code=UNDECLARED_TASK_TYPE, wait_id=answer.wait_id)
        # Nobody has answered in time: ask again.
        withdraw(workflow, _asked(name))


def withdraw_questions(workflow: Workflow, name: str) -> None:
    """It is declared again. If it leaves once more, that is a new question."""
    withdraw(workflow, name, _asked(name))


def _asked(name: str) -> str:
    return f"{name}:asked"
