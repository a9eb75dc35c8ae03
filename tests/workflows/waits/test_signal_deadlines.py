"""How long a step waits for a signal, and how often it looks for itself meanwhile."""

from datetime import timedelta

from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, make_due, submit, work
from tests.workflows.waits.approvals import boss
from tests.workflows.waits.signals import await_signals, fail_until, tell
from workflows import operations
from workflows.errors import RetryableStepError
from workflows.models import Wait

pytestmark = engine.ENGINE


def test_nothing_in_time_fails_it_and_a_retry_waits_anew() -> None:
    define([await_signals("paid")])
    workflow = work(submit())
    engine.expire(workflow)
    workflow = work(workflow)
    assert (workflow.status, workflow.last_error_code) == ("FAILED", "wait_expired")
    assert Wait.objects.get().outcome == "expired"
    operations.retry(workflow.pk, user=boss())
    workflow = work(workflow)
    assert (workflow.status, workflow.wake_on) == ("PENDING", ["paid"])
    tell(workflow, "paid")
    assert work(workflow).status == "COMPLETE"


# --- Looks --------------------------------------------------------------------------------------------


def test_with_looks_it_runs_again_sooner_and_sooner_never_past_its_deadline() -> None:
    define([await_signals("paid", look=lambda: None, timeout=timedelta(hours=1))])
    workflow = work(submit())
    until_first_look = workflow.invisible_until - timezone.now()
    assert timedelta(seconds=3) < until_first_look <= timedelta(seconds=5)
    Wait.objects.update(created_at=timezone.now() - timedelta(seconds=20))
    make_due(workflow)
    workflow = work(workflow)
    assert timedelta(seconds=18) < workflow.invisible_until - timezone.now() <= timedelta(seconds=21)
    Wait.objects.update(created_at=timezone.now() - timedelta(minutes=30))
    make_due(workflow)
    workflow = work(workflow)
    assert timedelta(seconds=58) < workflow.invisible_until - timezone.now() <= timedelta(minutes=1)
    soon = timezone.now() + timedelta(seconds=30)
    Wait.objects.update(deadline=soon)
    make_due(workflow)
    assert work(workflow).invisible_until == soon
    assert kinds(workflow) == ["waiting"], "it waits on as before: no news"


def test_what_a_look_finds_is_the_answer_and_stays_it() -> None:
    mended, looks = list[bool](), [None, {"n": 9}, {"n": 10}]
    define([await_signals("paid", look=lambda: looks.pop(0)), fail_until(mended)])
    workflow = work(submit())
    assert workflow.wake_on == ["paid"]
    make_due(workflow)
    workflow = work(workflow)
    assert workflow.current_step == "fail_at_first"
    tell(workflow, "paid", 3)
    mended.append(True)
    make_due(workflow)
    workflow = work(workflow)
    assert (workflow.context["number"], workflow.context["text"], workflow.context["tags"]) == (9, "", ["look"])
    assert looks == [{"n": 10}], "it has looked twice"
    assert Wait.objects.get().outcome == "found"


def test_a_look_that_fails_for_now_has_found_nothing_and_one_that_fails_for_good_fails_the_step() -> None:
    errors = [RetryableStepError("Busy."), ValueError()]

    def look() -> None:
        raise errors.pop(0)

    define([await_signals("paid", look=look)])
    workflow = work(submit())
    assert (workflow.status, workflow.wake_on, workflow.retry_count) == ("PENDING", ["paid"], 0)
    make_due(workflow)
    assert work(workflow).status == "FAILED"
