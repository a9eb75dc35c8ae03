"""Did it happen? What a repeat of a call in doubt settles, and what it leaves in doubt."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone

from tests import engine
from tests.engine import again, define, due_in, last_attempt, make_due, submit, work, worker
from tests.workflows.downstream import KEY_TTL, Downstream, call_step, fail, past_its_key, state, unknown
from workflows import effects, failpoints, operations
from workflows.definition import Retry, Step
from workflows.errors import ClaimLost, RetryableStepError, StepError, Suspend, UnknownOutcome
from workflows.models import Attempt, Effect, ManualTask, Workflow

pytestmark = engine.ENGINE


# --- A repeat of a call -------------------------------------------------------------------------------


def refuse(**said: Any) -> list[BaseException]:
    """What a repeat may meet: no connection, 503, 401. None of them knows of the first call."""
    return [
        RetryableStepError("unreachable", code="unreachable", base_delay=0, **said),
        StepError("refused", code="token_missing", **said),
    ]


def died_in_its_call(service: Downstream, **policy: Any) -> Workflow:
    """A workflow whose worker was killed in the call: nobody has written what came of it."""
    define([call_step(service, **policy)])
    workflow = submit()
    with failpoints.armed("after_call:call", die), pytest.raises(Died):
        worker().process_next()
    connections.close_all()
    return workflow


class Died(ClaimLost):
    """As good as SIGKILL: nothing is written."""


def die() -> None:
    raise Died


IN_DOUBT = [unknown, died_in_its_call]


@pytest.mark.parametrize(
    ("doubtful", "error", "then"),
    [
        *((doubtful, error, "unknown") for doubtful in IN_DOUBT for error in refuse()),
        *((unknown, error, "not_done") for error in refuse(answers_key=True)),
        (died_in_its_call, UnknownOutcome("no answer", answers_key=True), "unknown"),
        (died_in_its_call, Suspend("for ever", wake_on=[], until=timezone.now()), "unknown"),
    ],
)
def test_a_failed_repeat_leaves_the_call_in_doubt_unless_it_answers_to_the_key_itself(
    service: Downstream, doubtful: Callable[..., Workflow], error: BaseException, then: str
) -> None:
    workflow = doubtful(service, key_ttl=KEY_TTL)
    service.errors = [error]
    again(workflow)
    assert (len(service.calls), state()) == (2, then)


@pytest.mark.parametrize("doubtful", IN_DOUBT)
def test_a_repeat_that_does_not_apply_leaves_the_call_in_doubt_and_is_a_failure(
    service: Downstream, doubtful: Callable[..., Workflow]
) -> None:
    """COMPLETE would say that all is well, of a call that nobody knows of."""
    workflow = doubtful(service, key_ttl=KEY_TTL)
    service.answers = [None]
    workflow = again(workflow)
    assert (state(), workflow.status, workflow.last_error_code) == ("unknown", "PENDING", "does_not_apply")


@pytest.mark.parametrize(("second", "is_repeated"), [(18, False), (8, True)])
def test_a_clock_that_is_set_back_past_the_end_of_a_key_makes_nobody_repeat_it(
    service: Downstream, second: int, is_repeated: bool
) -> None:
    """Forty minutes ago by the clock, which was set back by a quarter of an hour or more before the third attempt.

    The service has forgotten a key of one hour, and would charge again.
    """
    workflow = unknown(service, key_ttl=timedelta(hours=1), settle=0)
    now, minute = timezone.now(), timedelta(minutes=1)
    for number, at in ((1, -40), (2, second), (3, -5)):
        times = {"opened_at": now + at * minute, "closed_at": now + at * minute}
        Attempt.objects.update_or_create(workflow=workflow, number=number, defaults={"worker": "host:1", **times})
    Effect.objects.update(first_begun_at=now - 40 * minute)
    again(workflow)
    assert (len(service.calls) == 2, ManualTask.objects.exists()) == (is_repeated, not is_repeated)


@pytest.mark.parametrize("happened", [True, False])
def test_after_a_repeat_that_does_not_apply_a_person_is_asked_and_it_is_repeated_no_more(
    service: Downstream, happened: bool
) -> None:
    """Else it would be repeated until it has failed too often, and nobody be asked."""
    workflow = died_in_its_call(service, key_ttl=KEY_TTL, settle=0)
    service.answers = [None, None]
    again(workflow)
    assert again(workflow).waiting_for == "Unclear call: did “Call” happen?"
    assert len(service.calls) == 2
    task, ada = ManualTask.objects.get(), User.objects.create_superuser("ada")
    assert due_in(task) == "1 h"
    if happened:
        operations.approve(task.pk, user=ada, answer={"number": 1})
    else:
        operations.reject(task.pk, user=ada, reason="It had nothing to do.")
    assert work(workflow).status == "COMPLETE"
    assert (state(), len(service.calls)) == (("done", 2) if happened else ("skipped", 3))


def test_a_step_that_asks_for_its_key_and_returns_none_may_have_called() -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        effects.key_for(workflow, "call")

    define([Step(call, once=True, settle=0)])
    workflow = work(submit())
    assert (state(), workflow.status, workflow.last_error_code) == ("unknown", "PENDING", "none_after_key")
    assert again(workflow).waiting_for == "Unclear call: did “Call” happen?"


def test_nobody_is_asked_about_a_repeat_that_does_not_apply_while_the_call_may_be_on_its_way(
    service: Downstream,
) -> None:
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.answers = [None]
    again(workflow)
    assert again(workflow).last_error_code == "unsettled"
    assert not ManualTask.objects.exists()


def test_after_a_failed_repeat_a_failure_still_undoes_what_may_have_happened(service: Downstream) -> None:
    workflow = unknown(service, key_ttl=KEY_TTL, undo=service.undo)
    service.errors = [StepError("refused", code="token_missing")]
    workflow = again(workflow)
    assert (workflow.status, workflow.compensating, workflow.last_error_code) == ("PENDING", True, "token_missing")
    past_its_key()
    workflow = again(workflow)
    operations.approve(ManualTask.objects.get().pk, user=User.objects.create_superuser("ada"), answer={"number": 1})
    assert work(workflow).status == "FAILED"
    assert service.undone == [f"{workflow.key}:call:undo"]


def test_that_a_repeat_does_not_apply_is_no_failure_of_the_step(service: Downstream) -> None:
    """Failed for good, nobody would be asked; and with a long back-off, not for hours."""
    workflow = died_in_its_call(service, key_ttl=KEY_TTL, settle=0, retry=Retry(max_attempts=1, base_delay=3600))
    service.answers = [None]
    make_due(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("PENDING", "does_not_apply")
    assert workflow.invisible_until - last_attempt(workflow).closed_at < timedelta(seconds=1)  # type: ignore[operator]


# --- A repeat of an undo ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", refuse())
def test_a_failed_repeat_leaves_an_undo_in_doubt(service: Downstream, error: BaseException) -> None:
    """A person who is asked would else read that nothing was given back, and might let it stand."""
    service.undo_errors = [UnknownOutcome("no answer"), error]
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    for _ in range(2):
        again(workflow)
    assert len(service.undone) == 2
    assert Effect.objects.get(undo=True).state == "unknown"
    assert again(workflow).status == "FAILED"
