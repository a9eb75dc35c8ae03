"""The brake: many workflows fail at one step for a reason that nobody explains. (The rules: test_causes.)"""

from __future__ import annotations

from datetime import timedelta
from threading import Thread
from time import time
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from tests import engine
from tests.engine import (
    again,
    another_connection,
    define,
    do_maintenance,
    draining,
    kinds,
    submit,
    until_blocked,
    with_its_connections,
    work,
    worker,
)
from tests.workflows.features.outages.services import (
    SECOND,
    Downstream,
    circuit,
    ends_at_once,
    story,
    submit_and_work,
    trial_is_due,
)
from workflows.definition import Step
from workflows.errors import NotAllowed, RetryableStepError, StepError, UnknownOutcome
from workflows.features.brake import causes, health, operations
from workflows.features.brake.brake import WorkersBrake
from workflows.features.brake.causes import Outcome
from workflows.features.brake.release import release_braked
from workflows.features.outages import circuits
from workflows.features.outages import operations as services
from workflows.models import Attempt, Effect, ManualTask, Service, WorkerProcess, Workflow
from workflows.models.deputy import Deputy
from workflows.state.attempt_log import OpenAttempt

pytestmark = [*engine.ENGINE, pytest.mark.usefixtures("a_vote_for_each_step", "cohorts_at_once")]

HOUR = timedelta(hours=1)
CAUSE = "test/enroll: TypeError"


class Program:
    """Charges, then enrols; `bug` is what the enrolment raises."""

    def __init__(self) -> None:
        self.bug: BaseException | None = None
        self.charged: list[int] = []
        self.enrolled: list[int] = []
        self.refunded: list[int] = []
        self.refund_bug: BaseException | None = None

    def charge(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        self.charged.append(workflow.pk)
        return {}

    def refund(self, *, workflow: Workflow, context: Any, effect: Any) -> None:
        if self.refund_bug:
            raise self.refund_bug
        self.refunded.append(workflow.pk)

    def enroll(self, *, workflow: Workflow, context: Any) -> dict[str, Any]:
        if self.bug and not workflow.payload.get("well"):
            raise self.bug
        self.enrolled.append(workflow.pk)
        return {}

    def define(self, **charge: Any) -> None:
        charging = Step(self.charge, once=True, undo=self.refund, key_ttl=HOUR, needs=("enroll",), **charge)
        define([charging, Step(self.enroll, once=True, key_ttl=HOUR)])


@pytest.fixture
def program() -> Program:
    program = Program()
    program.define()
    return program


def work_due() -> None:
    this = worker()
    while this.process_next():
        pass


def submit_and_drain(count: int = 1) -> list[Workflow]:
    """So many workflows, worked on until none is due."""
    submitted = [submit() for _ in range(count)]
    work_due()
    return [Workflow.objects.get(pk=each.pk) for each in submitted]


def braked(program: Program, count: int = 5, bug: BaseException | None = None) -> list[Workflow]:
    """So many workflows that have met the bug; the brake is on since the fifth."""
    program.bug = bug or TypeError("a bug")
    return submit_and_drain(count)


def met(program: Program, count: int = 1) -> list[Workflow]:
    """So many workflows that have met the bug, after four of others: the brake is on since the first."""
    at = time()
    votes = [Outcome(at, "", 0, -number, str(number)) for number in range(1, 5)]
    named = {"workflow_type": "test", "step": "enroll", "code": "TypeError"}
    since = {"since": timezone.now(), "failed_at": timezone.now()}
    Service.objects.create(name=CAUSE, tallies={settings.RELEASE: votes}, **named, **since)
    program.bug = TypeError("a bug")
    return submit_and_drain(count)


def statuses(workflows: list[Workflow]) -> list[str]:
    return [Workflow.objects.get(pk=each.pk).status for each in workflows]


def work_all() -> None:
    this = worker()
    while release_braked().changed or this.process_next():
        pass


def test_from_the_fifth_on_they_are_parked_with_their_charge_and_nothing_is_undone(program: Program) -> None:
    *judged, fifth = braked(program)
    assert [each.status for each in judged] == ["FAILED"] * 4
    assert (fifth.status, fifth.parked_on, fifth.compensating, fifth.retry_count) == ("PENDING", CAUSE, False, 0)
    assert kinds(fifth) == ["parked"]
    assert fifth.last_error_class == "TypeError"
    assert set(circuit(CAUSE).judged) == {each.pk for each in judged}
    assert story(CAUSE) == ["opened"]
    assert "enroll" in circuit(CAUSE).traceback
    charged = len(program.charged)
    (sixth,) = submit_and_drain()
    assert len(program.charged) == charged, "it parks before the charge, which needs the enrolment"
    assert (sixth.parked_on, sixth.current_step) == (CAUSE, "charge")


@pytest.mark.parametrize(
    ("bug", "on"),
    [
        pytest.param(StepError("No.", code="gone"), True, id="a code without words"),
        pytest.param(StepError("No."), True, id="no code"),
        pytest.param(StepError("No.", code="approval_rejected"), False, id="a code with words"),
    ],
)
def test_a_failure_that_the_wording_explains_is_no_vote(program: Program, bug: StepError, on: bool) -> None:
    assert statuses(braked(program, 6, bug))[-1] == ("PENDING" if on else "FAILED")
    assert Service.objects.exists() is on


def test_what_has_passed_a_moment_before_the_first_failure_counts(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.features.brake.brake.JUST_NOW", 60.0)
    program.bug = TypeError("for a few")
    well, odd = [submit({"well": True}) for _ in range(10)], [submit() for _ in range(5)]
    work_due()
    assert statuses(well + odd) == ["COMPLETE"] * 10 + ["FAILED"] * 5


def test_a_trial_that_passes_lets_all_go_on_and_each_is_charged_once(program: Program) -> None:
    workflows = braked(program, 8)
    trial_is_due(CAUSE)
    program.bug = None
    work_all()
    assert statuses(workflows) == ["FAILED"] * 4 + ["COMPLETE"] * 4
    assert sorted(program.charged) == sorted(each.pk for each in workflows)
    assert sorted(program.refunded) == [each.pk for each in workflows[:4]]
    assert story(CAUSE) == ["opened", "closed"]


def test_a_trial_in_vain_parks_again_and_the_next_one_comes_later(program: Program) -> None:
    fifth, sixth = met(program, 2)
    trial_is_due(CAUSE)
    assert release_braked().changed == 1
    work_due()
    fifth.refresh_from_db()
    assert (fifth.parked_on, fifth.last_error_class, fifth.retry_count) == (CAUSE, "TypeError", 0)
    assert circuit(CAUSE).cool_off == 10.0
    assert sixth.pk not in program.charged
    assert release_braked().changed == 0


def test_a_trial_in_vain_shows_what_it_has_met_last(program: Program) -> None:
    *_, fifth = braked(program, 5, StepError("No.", code="gone"))
    trial_is_due("test/enroll: gone")
    program.bug = StepError("Still no.", code="gone")
    assert again(fifth).last_error_message == "Still no."


def test_a_parked_workflow_is_never_failed_by_the_time_it_waits(program: Program) -> None:
    (fifth,) = met(program)
    Workflow.objects.filter(pk=fifth.pk).update(parked_at=timezone.now() - timedelta(days=9), retry_count=9)
    fifth = again(fifth)
    assert (fifth.status, fifth.parked_on, fifth.retry_count) == ("PENDING", CAUSE, 9)
    assert fifth.last_error_class == "TypeError", "what it has met, and not that it waits"


def test_a_worker_of_another_release_tries_at_once_and_the_others_take_up_nothing_of_it(
    program: Program, settings: Any
) -> None:
    settings.RELEASE = "bad"
    workflows = braked(program, 6)
    work_due()
    WorkerProcess.objects.create(name="bad", host="h", pid=1, release="bad", queue="default")
    assert release_braked().changed == 0
    WorkerProcess.objects.create(name="good", host="h", pid=2, release="good", queue="default")
    assert release_braked().changed == 1
    assert not worker().process_next(), "it is for the other"
    settings.RELEASE, program.bug = "good", None
    work_all()
    assert statuses(workflows) == ["FAILED"] * 4 + ["COMPLETE"] * 2
    settings.RELEASE, program.bug = "bad", TypeError("still")
    (late,) = submit_and_drain()
    assert late.parked_on == CAUSE, "on for its release still"
    assert late.pk not in program.charged
    settings.RELEASE, program.bug = "good", None
    work_all()
    good = WorkerProcess.objects.filter(release="good")
    for stopped, needs_somebody in ((None, []), (timezone.now(), [CAUSE]), (None, [])):
        good.update(stopped_at=stopped)
        release_braked()
        assert [each.pk for each in health.braked()] == needs_somebody, "nothing waits for it while others do it"
    WorkerProcess.objects.filter(release="bad").update(stopped_at=timezone.now())
    release_braked()
    assert circuit(CAUSE).opened_at is None


def test_a_release_whose_first_one_fails_joins_those_that_have_met_it(program: Program, settings: Any) -> None:
    settings.RELEASE = "bad"
    (fifth,) = met(program)
    WorkerProcess.objects.create(name="new", host="h", pid=2, release="new", queue="default")
    assert release_braked().changed == 1
    settings.RELEASE = "new"
    work_due()
    assert Workflow.objects.get(pk=fifth.pk).parked_on == CAUSE
    assert circuit(CAUSE).releases == ["bad", "new"]


def test_a_call_in_doubt_is_neither_looked_up_nor_asked_about_while_the_brake_is_on(program: Program) -> None:
    looked_up: list[int] = []

    def raises_after(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        program.charged.append(workflow.pk)
        raise TypeError("after the call")

    def find(*, workflow: Workflow, context: Any, effect: Any) -> dict[str, Any]:
        looked_up.append(workflow.pk)
        return {}

    define([Step(raises_after, name="enroll", once=True, lookup=find)])
    *_, fifth = submit_and_drain(5)
    assert (fifth.parked_on, Effect.objects.get(workflow=fifth).state) == (CAUSE, "unknown")
    again(fifth)
    assert (looked_up, ManualTask.objects.count()) == ([], 0)
    trial_is_due(CAUSE)
    assert again(fifth).status == "COMPLETE", "the lookup has found it"
    assert program.charged.count(fifth.pk) == 1


def test_a_reversal_that_fails_for_many_parks_and_asks_no_person(program: Program) -> None:
    program.refund_bug = TypeError("no refunds")
    braked(program, 5, StepError("No.", code="approval_rejected"))
    work_due()
    name = "test/undo charge: TypeError"
    Workflow.objects.update(invisible_until=timezone.now())
    work_due()
    assert Workflow.objects.filter(parked_on=name, compensating=True).count() == 5
    assert not ManualTask.objects.exists()
    program.refund_bug = None
    trial_is_due(name)
    work_all()
    assert (len(program.refunded), Workflow.objects.filter(status="FAILED").count()) == (5, 5)


def crash(workflow: Workflow, *, step: str = "enroll", number: int = 1, release: str = "") -> None:
    """Its worker, of that release, has crashed in the enrolment, or another step."""
    died = {"outcome": "crashed", "died_in": step, "release": release}
    attempt = Attempt.objects.create(workflow=workflow, number=number, worker="w", **died)
    Attempt.objects.filter(pk=attempt.pk).update(closed_at=timezone.now())


def test_a_step_that_crashes_the_workers_of_five_workflows_is_not_tried_again_by_that_release(
    program: Program,
) -> None:
    program.bug = RetryableStepError("Not yet.")
    workflows = [submit() for _ in range(6)]
    for each in workflows[:5]:
        crash(each)
    work_due()
    assert [each.parked_on for each in Workflow.objects.order_by("pk")][4:] == ["test/enroll: worker_crashed"] * 2
    crashed = circuit("test/enroll: worker_crashed")
    assert crashed.opened_at
    assert crashed.retry_at is None
    assert release_braked().changed == 0
    trial_is_due(crashed.name)  # a person has it tried, in vain
    crash(workflows[5], number=9)
    again(workflows[5])
    assert circuit(crashed.name).retry_at is None, "it waits for the next person"


def test_an_outage_is_no_cause(programs: Downstream) -> None:
    define([Step(programs.step)])
    programs.state = "down"
    submit_and_work(6)
    assert not Service.objects.exclude(step="").exists()
    assert work(submit()).status == "PENDING"


def may_let_fail(name: str) -> User:
    made = User.objects.create_user(name, is_staff=True)
    made.user_permissions.add(Permission.objects.get(codename="let_fail_service"))
    return made


def test_what_people_let_fail_fails_is_refunded_and_what_is_parked_later_is_not(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.features.brake.operations.ALONE", 2)
    (fifth,) = met(program)
    lead, engineer = may_let_fail("lead"), may_let_fail("engineer")
    with pytest.raises(PermissionDenied):
        operations.let_fail(CAUSE, user=User.objects.create_user("support"), reason="They are told.")
    submit_and_drain(2)
    operations.let_fail(CAUSE, user=lead, reason="They are told.")
    work_all()
    assert Workflow.objects.filter(parked_on=CAUSE).count() == 3, "two people decide that of many"
    with pytest.raises(NotAllowed, match="four eyes"):
        operations.let_fail(CAUSE, user=lead, reason="They are told.")
    stands_in, now, day = may_let_fail("stands-in"), timezone.now(), timedelta(days=1)
    Deputy.objects.create(absent=lead, deputy=stands_in, begins_at=now - day, ends_at=now + day, set_by="lead")
    with pytest.raises(NotAllowed, match="count as one person"):
        operations.let_fail(CAUSE, user=stands_in, reason="They are told.")
    operations.let_fail(CAUSE, user=engineer, reason="They are told, yes.")
    (late,) = submit_and_drain()
    assert again(late).status == "PENDING", "it was parked later"
    work_all()
    fifth.refresh_from_db()
    assert (fifth.status, fifth.last_error_code, fifth.pk in program.refunded) == ("FAILED", "let_fail", True)
    assert list(Workflow.objects.filter(status="PENDING")) == [late]
    assert story(CAUSE) == ["opened", "asked", "let_fail"]


def test_a_verdict_waits_for_the_vote_of_another_worker(program: Program) -> None:
    met(program, 0)
    fifth = submit()
    with another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_service WHERE name = %s FOR UPDATE", [CAUSE])
        judging = draining()
        until_blocked()
    judging.join(30)
    fifth.refresh_from_db()
    assert fifth.parked_on == CAUSE


def test_what_expires_while_it_is_parked_fails_and_has_its_charge_back(program: Program) -> None:
    (fifth,) = met(program)
    Workflow.objects.filter(pk=fifth.pk).update(expires_at=timezone.now())
    do_maintenance()
    work_due()
    fifth.refresh_from_db()
    assert (fifth.status, fifth.last_error_code, fifth.pk in program.refunded) == ("FAILED", "expired", True)


def test_a_cause_that_nobody_has_met_for_a_day_is_forgotten_unless_something_waits_for_it(program: Program) -> None:
    met(program)
    Service.objects.update(failed_at=timezone.now() - timedelta(days=2))
    assert causes.forget_old() == 0
    trial_is_due(CAUSE)
    program.bug = None
    work_all()
    assert causes.forget_old() == 1


def hold(name: str = CAUSE) -> None:
    user = User.objects.create_user("hold", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="hold_service"))
    services.hold(name, user=user, until=timezone.now() + HOUR, reason="They repair it.")


def test_a_held_cause_is_held_for_every_release(program: Program, settings: Any) -> None:
    settings.RELEASE = "bad"
    workflows = braked(program, 6)
    WorkerProcess.objects.create(name="good", host="h", pid=2, release="good", queue="default")
    release_braked()
    hold()
    settings.RELEASE, program.bug = "good", None
    work_all()
    assert submit_and_drain()[0].parked_on == CAUSE
    assert not program.enrolled
    trial_is_due(CAUSE)
    work_all()
    assert statuses(workflows)[4:] == ["COMPLETE"] * 2


def test_a_workflow_whose_vote_was_heard_before_the_brake_was_let_go_is_not_judged(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fifth,) = met(program)
    find_open = circuits.find_open

    def let_go_just_now(name: str) -> Service | None:
        with circuits.locked(name, using="attempt_log", wait=True) as row:
            causes.let_go(row, "Another has passed.")  # type: ignore[arg-type]  # it waits for the row
        return find_open(name)

    monkeypatch.setattr(circuits, "find_open", let_go_just_now)
    fifth = again(fifth)
    assert (fifth.status, fifth.parked_on) == ("PENDING", CAUSE)


def test_failures_of_an_earlier_step_are_not_taken_for_those_of_the_step_that_it_is_parked_at(
    program: Program,
) -> None:
    met(program, 0)
    fifth = submit()
    Workflow.objects.filter(pk=fifth.pk).update(current_step="charge", retry_count=9)
    fifth = work(fifth)
    assert (fifth.parked_on, fifth.current_step, fifth.retry_count) == (CAUSE, "enroll", 0)


def test_what_is_let_fail_fails_though_the_trial_that_runs_passes(program: Program) -> None:
    fifth, sixth = met(program, 2)
    lead = may_let_fail("lead")
    trial_is_due(CAUSE)
    release_braked()

    class Enrolled(list[int]):
        def let_fail(self) -> None:
            operations.let_fail(CAUSE, user=lead, reason="They are told.")

        def append(self, pk: int) -> None:
            super().append(pk)
            let_fail = Thread(target=with_its_connections, args=(self.let_fail,))
            let_fail.start()
            let_fail.join()

    program.bug, program.enrolled = None, Enrolled()
    work_due()
    with pytest.raises(NotAllowed, match="off"):
        operations.let_fail(CAUSE, user=lead, reason="Once more.")
    work_all()
    assert statuses([fifth, sixth]) == ["COMPLETE", "FAILED"]
    assert circuit(CAUSE).let_fail_until is None


def test_what_is_let_fail_fails_though_it_has_crashed_its_worker_once_more(program: Program) -> None:
    program.bug = RetryableStepError("Not yet.")
    workflows = [submit() for _ in range(5)]
    for each in workflows:
        crash(each)
    work_due()
    fifth, name = workflows[4], "test/enroll: worker_crashed"
    crash(fifth, number=9)  # as a person had it tried; poison would park it again
    operations.let_fail(name, user=may_let_fail("lead"), reason="They are told.")
    fifth = again(fifth)
    assert (fifth.status, fifth.last_error_code) == ("FAILED", "let_fail")


def test_of_hundreds_of_codes_the_last_few_are_suspected(program: Program) -> None:
    now = timezone.now()
    codes = [f"code {number}" for number in range(causes.MOST_SUSPECTED + 9)]
    Service.objects.bulk_create(
        Service(
            name=code, workflow_type="test", step="enroll", code=code, since=now, failed_at=now - HOUR / 2 + n * SECOND
        )
        for n, code in enumerate(codes)
    )
    braked(program, 1)
    suspected = Service.objects.exclude(since=None).order_by("failed_at").values_list("name", flat=True)
    assert list(suspected) == [*codes, CAUSE][-causes.MOST_SUSPECTED :]


def test_a_burst_of_one_client_holds_up_the_others_for_two_trials(program: Program) -> None:
    def raises(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        if "odd" in workflow.payload:
            raise TypeError("odd")
        return {}

    charging = Step(program.charge, once=True, undo=program.refund, key_ttl=HOUR, needs=("enroll",))
    define([charging, Step(raises, name="enroll", once=True, key_ttl=HOUR)])
    for number in range(8):
        submit({"odd": number}, submitted_by="odd")
    others = [submit({"number": number}, submitted_by="well") for number in range(5)]
    work_due()
    assert {each.parked_on for each in Workflow.objects.filter(pk__in=[other.pk for other in others])} >= {CAUSE}
    for _ in range(2):
        Service.objects.filter(name=CAUSE).update(retry_at=timezone.now())  # after the trial before
        release_braked()
        work_due()
    assert circuit(CAUSE).opened_at is None
    work_all()
    assert statuses(others) == ["COMPLETE"] * 5


def test_a_step_that_is_renamed_meanwhile_has_its_cause_still(program: Program) -> None:
    (fifth,) = met(program)
    define([Step(program.enroll, name="signup", formerly=("enroll",), once=True, key_ttl=HOUR)])
    trial_is_due(CAUSE)
    fifth = again(fifth)
    assert (fifth.status, fifth.parked_on) == ("PENDING", CAUSE)


def test_the_outcome_of_a_trial_is_written_at_once(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.features.brake.brake.VOTE_EVERY", 3600.0)
    program.bug, this = TypeError("a bug"), worker()
    for payload in ({"n": 0}, {"well": True}, {"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}):
        submit(payload)
        while this.process_next():  # what a judged one has done is undone
            pass
    assert circuit(CAUSE).opened_at
    trial_is_due(CAUSE)
    release_braked()
    program.bug = None
    assert this.process_next()
    assert circuit(CAUSE).opened_at is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"queue": "other"}, id="of another queue"),
        pytest.param({"only": "compensation"}, id="that only reverses"),
        pytest.param({"last_seen": timezone.now() - timedelta(hours=1)}, id="not seen for an hour"),
    ],
)
def test_a_worker_of_another_release_that_takes_nothing_of_it_leaves_it_to_the_others(
    program: Program, other: dict[str, Any]
) -> None:
    met(program)
    named = {"name": "new", "host": "h", "pid": 2, "release": "new", "queue": "default"}
    WorkerProcess.objects.create(**{**named, **other})
    assert release_braked().changed == 0
    assert not circuit(CAUSE).elsewhere


def test_while_no_worker_is_live_the_brake_stays_on(program: Program) -> None:
    met(program)
    Workflow.objects.update(parked_on="", parked_at=None)
    WorkerProcess.objects.update(stopped_at=timezone.now())
    release_braked()
    assert circuit(CAUSE).opened_at


def test_what_crashed_workers_of_another_release_is_run_by_this_one(program: Program, settings: Any) -> None:
    settings.RELEASE = "good"
    workflows = [submit() for _ in range(5)]
    for each in workflows:
        crash(each, release="bad")
    work_due()
    assert statuses(workflows) == ["COMPLETE"] * 5
    assert circuit("test/enroll: worker_crashed").releases == ["bad"]


def test_a_reversal_that_crashes_its_workers_is_a_cause_too(program: Program) -> None:
    program.bug = StepError("No.", code="approval_rejected")
    program.refund_bug = RetryableStepError("Not yet.", code="approval_rejected")
    for each in submit_and_drain(5):
        crash(each, step="undo charge", number=9)
    Workflow.objects.update(invisible_until=timezone.now())
    work_due()
    assert Workflow.objects.filter(parked_on="test/undo charge: worker_crashed", compensating=True).count() == 1


def test_a_best_effort_step_that_crashes_the_workers_of_many_is_not_passed_over() -> None:
    def note(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError("Not yet.")

    define([Step(note, best_effort=True)])
    workflows = [submit() for _ in range(6)]
    for each in workflows[:5]:
        crash(each, step="note")
    work_due()
    assert [each.parked_on for each in Workflow.objects.order_by("pk")][4:] == ["test/note: worker_crashed"] * 2


def test_that_nobody_can_tell_yet_whether_there_is_something_to_reverse_is_no_failure(program: Program) -> None:
    def nobody_knows(*, workflow: Workflow, context: Any) -> None:
        raise UnknownOutcome("Perhaps.", code="effect_in_doubt", max_attempts=1)

    def not_found(*, workflow: Workflow, context: Any, effect: Any) -> None: ...

    define([Step(nobody_knows, once=True, undo=program.refund, lookup=not_found, settle=3600)])
    assert all(each.compensating for each in submit_and_drain(5))
    assert not Service.objects.exists()


@pytest.mark.parametrize(("just_now", "of_type", "counted"), [(9, "test", 1), (-9, "test", 0), (9, "other", 0)])
def test_before_a_suspicion_the_passes_of_the_same_type_just_now_are_taken(
    monkeypatch: pytest.MonkeyPatch, just_now: float, of_type: str, counted: int
) -> None:
    monkeypatch.setattr("workflows.features.brake.brake.JUST_NOW", just_now)
    define([Step(ends_at_once, name="enroll")])
    brake = WorkersBrake()
    for workflow, steps in (
        (Workflow(workflow_type=of_type, submitted_by="web"), [{"step": "enroll", "outcome": "ran"}]),
        (Workflow(workflow_type="test"), []),
    ):
        brake.of(workflow, None, OpenAttempt(1, 1, 1, "", steps=steps))
    assert brake.take_passes("enroll", "TypeError") == ({"web": counted} if counted else {})
