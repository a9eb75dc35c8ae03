"""Payloads that harm whoever handles them: their neighbours complete, and they come to rest with a reason."""

import os
import signal
import time
from datetime import timedelta
from itertools import groupby
from pathlib import Path

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts, begun, done, now, submit, who_runs
from tests.processes import until
from workflows.features.doctor import installation
from workflows.health import counts, health
from workflows.models import Attempt, Chore, Event, ManualTask, WorkerProcess, Workflow

pytestmark = pytest.mark.django_db(transaction=True)


def at_rest(*workflows: Workflow) -> bool:
    return not Workflow.objects.filter(pk__in=[each.pk for each in workflows], status="PENDING").exists()


CRASHES = {"exit": "exit code 3", "exit as if all were well": "exit code 0", "segfault": "SIGSEGV"}


def test_what_crashes_its_worker_is_failed_and_its_neighbours_complete(runworker: Start, effects: Path) -> None:
    poison = {harm: submit("harmful", effects, {"harm": harm}) for harm in CRASHES}
    neighbours = [submit("counted", effects) for _ in range(20)]
    worker = runworker("HARMFUL", "COUNTED", arguments=("--processes", "2"))
    until(lambda: at_rest(*poison.values(), *neighbours), seconds=180, what=lambda: worker.output)
    assert {now(each).status for each in neighbours} == {"COMPLETE"}
    for harm, workflow in poison.items():
        workflow = now(workflow)
        assert (workflow.status, workflow.last_error_code, workflow.current_step) == ("FAILED", "poison", "do_harm")
        assert workflow.last_error_message == (
            f"It crashed its worker 3 times in a row: in do_harm by {CRASHES[harm]}."
        )
        # What another process found open before its supervisor knew was rescheduled for two seconds first.
        ended = [outcome for outcome in attempts(workflow) if outcome != "put_back"]
        assert ended == ["crashed", "crashed", "crashed", "failed"]
        assert engine.kinds(workflow).count("crashed") == 3
        assert "vanished" not in engine.kinds(workflow)
        assert done(effects, "begin").count(workflow.pk) == 3
    assert len(until(lambda: len(worker.children()) == 2 and worker.children())) == 2


def test_a_drain_goes_on_after_a_step_that_exits_as_if_all_were_well(runworker: Start, effects: Path) -> None:
    submit("harmful", effects, {"harm": "exit as if all were well"})
    neighbours = [submit("counted", effects) for _ in range(3)]
    worker = runworker("HARMFUL", "COUNTED", arguments=("--drain",))
    assert worker.wait(60) == 0
    assert at_rest(*neighbours), worker.output


def test_what_gets_its_worker_killed_backs_off_and_in_the_end_a_person_is_asked(
    runworker: Start, effects: Path
) -> None:
    """As by a kernel that is short of memory. Nobody is condemned: that may be any neighbour's fault."""
    neighbour, workflow = submit("counted", effects), submit("harmful", effects, {"harm": "kill"})
    # Several supervisors: each forks again the later, the more of its children die young.
    workers = [runworker("HARMFUL", "COUNTED") for _ in range(3)]

    def asked() -> bool:
        engine.make_due(workflow)  # nine minutes in reality
        return ManualTask.objects.filter(workflow=workflow).exists() and attempts(workflow)[-1] == "held"

    until(asked, seconds=240, what=lambda: "".join(worker.output for worker in workers))
    ended = attempts(workflow)
    assert (ended.count("killed"), ended.count("put_back")) == (10, 8)
    assert set(ended[18:]) <= {"held", ""}, "made due once more, it still waits for the answer"
    assert now(neighbour).status == "COMPLETE"
    assert Event.objects.filter(workflow=workflow, kind="put_back").count() == 8


def test_a_maintenance_task_that_kills_its_workers_is_set_aside_and_the_rest_goes_on(
    runworker: Start, effects: Path
) -> None:
    worker = runworker("COUNTED", arguments=("--processes", "2"), ONRAMP_FAILPOINT="in_chore:wake expired")

    def is_set_aside() -> bool:
        Chore.objects.filter(begun_at__lt=Now() - timedelta(seconds=1)).update(due_at=Now())  # 10 s in reality
        return Chore.objects.filter(pk="wake expired", set_aside_at__isnull=False).exists()

    until(is_set_aside, seconds=60, what=lambda: worker.output)
    neighbours = [submit("counted", effects) for _ in range(3)]
    until(lambda: at_rest(*neighbours), what=lambda: worker.output)
    until(lambda: len(worker.children()) == 2, what=lambda: worker.output)
    begun_since = Chore.objects.filter(pk="wake parents", due_at__gt=timezone.now())
    until(begun_since.exists, what=lambda: worker.output)
    assert WorkerProcess.objects.filter(ended_how="SIGKILL").count() <= 3, "the first may have had no row yet"
    assert "the maintenance task “wake expired” was set aside" in str(health.judge(counts.read()))
    assert [each.about for each in installation.maintenance_set_aside()] == ["maintenance"]


def test_what_never_returns_is_ended_as_overdue_retried_and_failed(runworker: Start, effects: Path) -> None:
    stuck = [submit("stuck", effects, {"harm": harm}) for harm in ("loop", "block")]
    worker = runworker("STUCK", "COUNTED", arguments=("--processes", "3"))
    until(lambda: done(effects, "begin"), what=lambda: worker.output)
    neighbours = [submit("counted", effects) for _ in range(20)]
    until(lambda: at_rest(*neighbours), seconds=8, what=lambda: worker.output)
    until(lambda: at_rest(*stuck), seconds=180, what=lambda: worker.output)
    for workflow in stuck:
        workflow = now(workflow)
        told = (workflow.status, workflow.last_error_code, workflow.current_step, workflow.retry_count)
        assert told == ("FAILED", "overdue", "never_return", 2)
        # The next worker may be quicker than the supervisor's word of the end, and is then ended as overdue itself.
        assert [each for each, _ in groupby(attempts(workflow))] == ["interrupted", "retry", "interrupted", "failed"]
        told = [each for each, _ in groupby(engine.kinds(workflow))]
        assert told == ["interrupted", "retry_scheduled", "interrupted", "failed"]
        ended = Attempt.objects.filter(workflow=workflow, outcome="interrupted")
        assert {each.died_how for each in ended} == {"overdue"}


def test_a_worker_killed_past_its_grace_was_interrupted(runworker: Start, effects: Path) -> None:
    """A deploy that could not wait for it: nobody's fault."""
    workflow = submit("held", effects)
    worker = runworker("HELD", arguments=("--grace", "0"))
    until(begun(workflow, effects), what=lambda: worker.output)
    holder = who_runs(workflow)
    os.kill(holder, signal.SIGSTOP)  # it does not come to its next step
    asked_at = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert time.monotonic() - asked_at >= 9
    first = Attempt.objects.get(workflow=workflow)
    assert (first.outcome, first.died_in, first.died_how) == ("interrupted", "hold", "grace")
    assert engine.kinds(workflow) == ["interrupted"]
