"""Did it happen? What settles a doubt, what does not, and what a person says."""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from time import sleep
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils import timezone
from pydantic import field_validator

from tests import engine
from tests.engine import again, define, last_attempt, make_due, submit, terminate, work, worker
from tests.workflows.downstream import (
    KEY_TTL,
    Downstream,
    call_step,
    fail,
    fail_at_first,
    past_its_key,
    state,
    unknown,
)
from workflows import effect_rows, effects, failpoints, operations, waits
from workflows.definition import Retry, Step
from workflows.errors import ClaimLost, NotAllowed, RetryableStepError, StepError, Suspend, UnknownOutcome
from workflows.models import Effect, ManualTask, Signal, Workflow
from workflows.waits import wait_for_time

pytestmark = engine.ENGINE


# --- A repeat of a call in doubt ----------------------------------------------------------------------


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


@pytest.mark.parametrize("doubtful", IN_DOUBT)
@pytest.mark.parametrize("error", refuse())
def test_a_failed_repeat_leaves_the_call_in_doubt(doubtful: Callable[..., Workflow], error: BaseException) -> None:
    service = Downstream()
    workflow = doubtful(service, key_ttl=KEY_TTL)
    service.errors = [error]
    again(workflow)
    assert len(service.calls) == 2
    assert state() == "unknown"


@pytest.mark.parametrize("doubtful", IN_DOUBT)
def test_a_repeat_that_does_not_apply_leaves_the_call_in_doubt_and_is_a_failure(
    doubtful: Callable[..., Workflow],
) -> None:
    """COMPLETE would say that all is well, of a call that nobody knows of."""
    service = Downstream()
    workflow = doubtful(service, key_ttl=KEY_TTL)
    service.answers = [None]
    workflow = again(workflow)
    assert (state(), workflow.status, workflow.last_error_code) == ("unknown", "PENDING", "does_not_apply")


@pytest.mark.parametrize("happened", [True, False])
def test_after_a_repeat_that_does_not_apply_a_person_is_asked_and_it_is_repeated_no_more(happened: bool) -> None:
    """Else it would be repeated until it has failed too often, and nobody be asked."""
    service = Downstream()
    workflow = died_in_its_call(service, key_ttl=KEY_TTL, settle=0)
    service.answers = [None, None]
    again(workflow)
    assert again(workflow).waiting_for == "Did call happen?"
    assert len(service.calls) == 2
    task, ada = ManualTask.objects.get(), User.objects.create_superuser("ada")
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
    assert again(workflow).waiting_for == "Did call happen?"


def test_nobody_is_asked_about_a_repeat_that_does_not_apply_while_the_call_may_be_on_its_way() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.answers = [None]
    again(workflow)
    assert again(workflow).last_error_code == "unsettled"
    assert not ManualTask.objects.exists()


def test_a_repeat_that_waits_leaves_the_call_in_doubt() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [Suspend("for ever", wake_on=[], until=timezone.now())]
    workflow = again(workflow)
    assert (state(), workflow.status) == ("unknown", "FAILED")


@pytest.mark.parametrize("error", refuse(answers_key=True))
def test_an_answer_to_the_key_itself_settles_the_doubt(error: BaseException) -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [error]
    again(workflow)
    assert state() == "not_done"


def test_an_unknown_outcome_settles_nothing_whatever_it_claims_to_answer() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [UnknownOutcome("no answer", answers_key=True)]
    again(workflow)
    assert state() == "unknown"


def test_after_a_failed_repeat_a_person_is_asked_once_the_key_is_forgotten() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL)
    service.errors = [RetryableStepError("unreachable")]
    again(workflow)
    past_its_key()
    assert again(workflow).waiting_for.startswith("Did call happen?")
    assert len(service.calls) == 2


def test_after_a_failed_repeat_a_failure_still_undoes_what_may_have_happened() -> None:
    service = Downstream()
    workflow = unknown(service, key_ttl=KEY_TTL, undo=service.undo)
    service.errors = [StepError("refused", code="token_missing")]
    workflow = again(workflow)
    assert (workflow.status, workflow.compensating, workflow.last_error_code) == ("PENDING", True, "token_missing")
    past_its_key()
    workflow = again(workflow)
    operations.approve(ManualTask.objects.get().pk, user=User.objects.create_superuser("ada"), answer={"number": 1})
    assert work(workflow).status == "FAILED"
    assert service.undone == [f"{workflow.key}:call:undo"]


# --- What a step makes of not knowing -----------------------------------------------------------------


def calls_and_waits(service: Downstream, swallow: bool) -> Step:
    """A step of a definition that nobody has tried: it charges first."""

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        service.call(workflow=workflow, context=context)
        with contextlib.suppress(BaseException if swallow else ArithmeticError):
            wait_for_time(workflow, "a moment", timedelta(hours=1))
        return {"number": 1}

    return Step(call, once=True, name="call", undo=service.undo, lookup=service.lookup)


@pytest.mark.parametrize("swallow", [False, True])
def test_what_a_step_has_called_before_it_waits_is_not_forgotten(swallow: bool) -> None:
    service = Downstream()
    service.found = [{"number": 1}]
    define([calls_and_waits(service, swallow)])
    workflow = work(submit())
    assert state() == "unknown"
    assert again(workflow).status == "FAILED"
    assert (service.calls, service.undone) == ([f"{workflow.key}:call"], [f"{workflow.key}:call:undo"])


@pytest.mark.parametrize("own", [StepError, RetryableStepError])
@pytest.mark.parametrize("inside", [True, False], ids=["in the handling", "after it"])
def test_an_error_of_its_own_for_a_timeout_says_nothing_of_the_call(own: type[StepError], inside: bool) -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        try:
            sleep(5)
        except BaseException:
            if inside:
                raise own("Broken.") from None
        raise own("Broken.")

    define([Step(call, once=True, timeout=0.1)])
    work(submit())
    assert state() == "unknown"


def test_a_timeout_that_a_step_swallows_does_not_say_that_it_did_not_apply() -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        with contextlib.suppress(BaseException):
            sleep(5)

    define([Step(call, once=True, timeout=0.1)])
    workflow = work(submit())
    assert (workflow.status, workflow.last_error_class, state()) == (
        "PENDING",
        "workflows.timeouts.StepTimeout",
        "unknown",
    )


def test_a_result_that_comes_late_is_a_result() -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        with contextlib.suppress(BaseException):
            sleep(5)
        return {"number": 1}

    define([Step(call, once=True, timeout=0.1)])
    assert (work(submit()).status, state()) == ("COMPLETE", "done")


@pytest.mark.parametrize(
    ("own", "then"),
    [
        (StepError("Broken."), "unknown"),
        (RetryableStepError("Busy."), "unknown"),
        (StepError("Declined.", answers_key=True), "not_done"),
    ],
)
def test_an_error_of_its_own_for_an_unknown_outcome_says_nothing_of_the_call(own: StepError, then: str) -> None:
    def call(*, workflow: Workflow, context: Any) -> None:
        try:
            raise UnknownOutcome("no answer")
        except RetryableStepError as error:
            raise own from error

    define([Step(call, once=True)])
    work(submit())
    assert state() == then


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "wait",
    [
        lambda workflow: waits.wait_for_time(workflow, "a\x00b", HOUR),
        lambda workflow: waits.wait_for_time(workflow, "pause", 3600),
        lambda workflow: waits.wait_for_signal(workflow, "paid", "cancel", timeout=HOUR),
        lambda workflow: waits.wait_for_children(workflow, "parts", [waits.Child("unheard of", {})], timeout=HOUR),
        lambda workflow: waits.require_approval(workflow, "review", question="May it?", team="nobody", timeout=HOUR),
        lambda workflow: waits.wait_for_signal(workflow, "paid", "paid", timeout=-HOUR),
    ],
    ids=["name", "time", "signal", "child", "team", "over"],
)
def test_a_wait_that_fails_says_nothing_of_the_call_before_it(wait: Callable[[Workflow], Any]) -> None:
    service = Downstream()

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        result = service.call(workflow=workflow, context=context)
        wait(workflow)
        return result

    define([Step(call, once=True)])
    work(submit())
    assert (len(service.calls), state()) == (1, "unknown")


# --- What a person says of a call ---------------------------------------------------------------------


def paid(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    raise UnknownOutcome("no answer")


def in_question(**policy: Any) -> tuple[Workflow, ManualTask, User]:
    """A call of which a person is asked whether it happened."""
    define([Step(paid, **{"once": True, "settle": 0, "returns": ("number", "text", "key"), **policy})])
    workflow = again(work(submit()))
    return workflow, ManualTask.objects.get(), User.objects.create_superuser("ada")


KEY = "6f6d0c5e-4f0a-4b53-9d7e-0c6f1d2a3b4c"


def test_a_yes_holds_every_field_that_the_step_returns() -> None:
    workflow, task, ada = in_question()
    answer = {"number": 9, "text": "ch_9", "key": KEY}
    operations.approve(task.pk, user=ada, answer=answer)
    workflow = work(workflow)
    assert (workflow.status, Effect.objects.get().result) == ("COMPLETE", answer)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, r"say what paid returned \(number, text, key\)"),
        ([], r"say what paid returned"),
        ({}, "paid returned these too: number, text, key"),
        ({"number": 9, "text": "ch_9"}, "paid returned these too: key"),
        ({"number": None, "text": "ch_9", "key": KEY}, "paid returned these too: number"),
        ({"number": 9, "text": "  ", "key": KEY}, "paid returned these too: text"),
        ({"number": 9, "text": "ch_9", "key": KEY, "tags": []}, "paid does not return tags"),
        ({"number": "nine", "text": "ch_9", "key": KEY}, r"number \(int_parsing\)"),
        ({"number": 9, "text": "ch_9", "key": "k"}, r"key \(uuid_parsing\)"),
        ({"number": 9, "text": "ch\x00", "key": KEY}, "cannot be kept"),
        ({"number": 9, "text": object(), "key": KEY}, "cannot be kept"),
    ],
)
def test_a_yes_that_is_not_what_the_step_returns_is_refused(answer: Any, why: str) -> None:
    """Recorded, it would fail every further run, and every undo."""
    _, task, ada = in_question()
    with pytest.raises(NotAllowed, match=why):
        operations.approve(task.pk, user=ada, answer=answer)
    task.refresh_from_db()
    assert (task.state, Signal.objects.count(), state()) == ("open", 0, "unknown")


@pytest.mark.parametrize("answer", [None, [], "{}"])
@pytest.mark.parametrize("returns", [(), None])
def test_that_a_call_returned_nothing_has_to_be_said(answer: Any, returns: tuple[str, ...] | None) -> None:
    workflow, task, ada = in_question(returns=returns)
    with pytest.raises(NotAllowed, match=r"say what paid returned \(an object, {} if that was nothing\)"):
        operations.approve(task.pk, user=ada, answer=answer)
    operations.approve(task.pk, user=ada, answer={})
    assert work(workflow).status == "COMPLETE"


def test_what_the_context_refuses_is_refused_also_of_a_declared_field() -> None:
    """A validator that looks at the field is no part of its type."""

    class Strict(engine.Context):
        @field_validator("text")
        @classmethod
        def _lower(cls, text: str | None) -> str | None:
            if text and text != text.lower():
                raise ValueError("no capitals")
            return text

    _, task, ada = in_question(returns=("text",))
    engine.DEFINITION.context_class = Strict
    with pytest.raises(NotAllowed, match=r"could have returned this: text \(value_error\)"):
        operations.approve(task.pk, user=ada, answer={"text": "CH_9"})
    operations.approve(task.pk, user=ada, answer={"text": "ch_9"})


def test_a_release_that_does_not_know_the_type_takes_no_yes_but_a_no() -> None:
    """It could not say what the call returns."""
    workflow, task, ada = in_question()
    Workflow.objects.filter(pk=workflow.pk).update(workflow_type="of the next release")
    with pytest.raises(NotAllowed, match="does not know the type of the next release"):
        operations.approve(task.pk, user=ada, answer={"number": 9, "text": "ch_9", "key": KEY})
    operations.reject(task.pk, user=ada, reason="Not there.")


def test_a_step_that_has_left_the_list_is_answered_as_one_that_says_nothing() -> None:
    _, task, ada = in_question()
    define([fail_at_first])
    with pytest.raises(NotAllowed, match="No step of test returns numbr"):
        operations.approve(task.pk, user=ada, answer={"numbr": 9})
    operations.approve(task.pk, user=ada, answer={"number": 9})


def test_a_call_that_returns_something_else_than_it_says_has_happened_all_the_same() -> None:
    service = Downstream()
    define([call_step(service, returns=("text",)), fail_at_first])
    workflow = again(work(submit()))
    assert (workflow.status, workflow.context["number"], len(service.calls)) == ("COMPLETE", 1, 1)


# --- An undo in doubt -----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", refuse())
def test_a_failed_repeat_leaves_an_undo_in_doubt(error: BaseException) -> None:
    """A person who is asked would else read that nothing was given back, and might let it stand."""
    service = Downstream()
    service.undo_errors = [UnknownOutcome("no answer"), error]
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    for _ in range(2):
        again(workflow)
    assert len(service.undone) == 2
    assert Effect.objects.get(undo=True).state == "unknown"
    assert again(workflow).status == "FAILED"


def test_an_undo_that_was_begun_after_its_state_was_read_is_not_begun_again() -> None:
    service = Downstream()
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    make_due(workflow)
    begin_late = """INSERT INTO workflows_effect (workflow_id, step, undo, state, idempotency_key, attempt)
                    SELECT %s, 'call', true, 'intent', 'late', 1"""

    def tell_late(execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        if sql.startswith("SELECT state FROM workflows_effect"):
            with engine.another_connection() as other:
                other.execute(begin_late, [workflow.pk])
        return found

    with connections["journal"].execute_wrapper(tell_late), pytest.raises(ClaimLost, match="before the undo was begun"):
        worker().process_next()
    connections.close_all()
    assert service.undone == []


def test_an_intent_that_was_long_on_its_way_to_the_disk_is_written_again_before_the_call() -> None:
    """Else the next worker might believe that the call can no longer be on its way, and it is only about to be made."""
    service = Downstream()
    define([call_step(service)])
    workflow = submit()
    delays = [effect_rows.MAX_INTENT_SECONDS + 0.1]

    def stall(execute: Any, sql: str, *rest: Any) -> Any:
        found = execute(sql, *rest)
        if "INSERT INTO workflows_effect AS e" in sql and delays:
            sleep(delays.pop())
            terminate("default")
        return found

    with connections["journal"].execute_wrapper(stall), pytest.raises(ClaimLost):
        worker().process_next()
    assert (state(), service.calls, workflow.status) == ("intent", [], "PENDING")


def test_that_a_repeat_does_not_apply_is_no_failure_of_the_step() -> None:
    """Failed for good, nobody would be asked; and with a long back-off, not for hours."""
    service = Downstream()
    workflow = died_in_its_call(service, key_ttl=KEY_TTL, settle=0, retry=Retry(max_attempts=1, base_delay=3600))
    service.answers = [None]
    make_due(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("PENDING", "does_not_apply")
    assert workflow.invisible_until - last_attempt(workflow).closed_at < timedelta(seconds=1)  # type: ignore[operator]
