"""What each fault is done to, and what it is judged by: the sandbox's log, the ledger, the attempts, the history."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cached_property
from threading import Timer
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.functions import Now

from onboarding.samples import Kind, Sample, samples
from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.faults import definitions
from tests.acceptance.faults.audit import Log, of, what_is_wrong
from tests.processes import Runworker, until
from tests.sandbox_process import SandboxProcess
from workflows import operations
from workflows.definition import WorkflowDefinition
from workflows.errors import NotAllowed
from workflows.models import Attempt, Effect, Event, FollowUp, ManualTask, Service, Workflow
from workflows.signals import store

# Those whose fate does not hang on a best-effort step: in a card's stead a bill is sent.
STEADY = frozenset(Kind) - {Kind.CARD_DECLINED}
BEST_EFFORT = {
    ("insurance", "verify_insurance"),
    ("payments", "attach_card"),
    ("messages", "set_communication_preferences"),
    ("accounts", "link_identity_verification"),
    ("messages", "send_confirmation"),
}

# The operations, and steps, that are done later when they were let go for a reason that passes.
FOLLOWED_UP = {step.name for step in definitions.ONBOARDING.steps if step.follow_up}

# The event that tells of an attempt's end. A wait is told of when it starts, and not each time it is met.
TOLD_BY = {
    "complete": "completed",
    "failed": "failed",
    "compensated": "compensated",
    "retry": "retry_scheduled",
    "put_back": "put_back",
    "lost": "lost",
    "vanished": "vanished",
    "crashed": "crashed",
    "killed": "killed",
    "interrupted": "interrupted",
    "followed_up": "followed_up",
    "follow_up_failed": "follow_up_failed",
}

# The ways to lose a worker that is at work: a connection of it is ended, or it is sent a signal.
ROLES = {"its claim ended": "claim", "its attempt log ended": "attempt_log"}
SIGNALS = {"killed": signal.SIGKILL, "stopped past its lease": signal.SIGSTOP}
LOSSES = (*SIGNALS, *ROLES)
# Once a workflow: it would be condemned for some of them, and rightly.
ONCE = {"crashed": signal.SIGSEGV, "stopped for good": signal.SIGSTOP}
SIGNALS |= ONCE

DEATHS = ("vanished", "crashed", "killed", "interrupted", "lost")
# How an attempt of a workflow that is complete may end, beside that: "waiting" while a circuit is open.
OF_FOLLOW_UPS = ("followed_up", "follow_up_failed", "waiting", "put_back")

# Seconds until everything is at rest: a machine that is busy may take some, only a defect takes all of them.
PATIENCE = 240.0


class System:
    """A sandbox, worker processes, the workflows given to them, and the people who are asked."""

    def __init__(self, sandbox: SandboxProcess, start: Start, seed: int) -> None:
        self.sandbox = sandbox
        self.seed = seed
        self.workers: list[Runworker] = []
        self.given: dict[int, Sample | None] = {}  # by workflow
        self.random = random.Random(seed)
        self.met: Counter[str] = Counter()
        self.stopped: set[int] = set()  # processes
        self._start = start

    # --- What happens -------------------------------------------------------------------------------

    def work(self, *names: str, processes: int = 1, arguments: tuple[str, ...] = (), **environ: str) -> Runworker:
        """Start a runworker of a release that knows definitions of tests.acceptance.faults.definitions."""
        paths = ",".join(f"{definitions.__name__}.{name}" for name in names or ["ONBOARDING"])
        given = {"WORKFLOWS": paths, "SERVICES_URL": self.sandbox.url, "SERVICES_TIMEOUT": "2", **environ}
        self.workers.append(self._start(arguments=("--processes", str(processes), *arguments), **given))
        return self.workers[-1]

    def submit(self, count: int, kinds: Collection[Kind] = STEADY) -> list[Workflow]:
        """Enter `count` onboarding submissions of these kinds, other ones each time."""
        self.seed += 1
        wanted = [sample for sample in samples(count * len(Kind) * 3, self.seed) if sample.kind in kinds]
        if count < len(kinds):  # else all kinds are among the first ones
            random.Random(self.seed).shuffle(wanted)
        return [self._enter(sample) for sample in wanted[:count]]

    def enter(self, workflow_type: str, **payload: Any) -> Workflow:
        """Enter a workflow of a definition of our own, for a patient who has an account."""
        patient = self.patient(workflow_type)
        workflow = engine.submit({"patient": patient, **payload}, workflow_type=workflow_type)
        self.given[workflow.pk] = None
        return workflow

    def lose_the_services(self, for_seconds: float = 0) -> None:
        """They are killed, with what they have in hand, and come back as soon as they can, or so much later."""
        self.sandbox.kill()
        time.sleep(for_seconds)
        self.sandbox.start()
        self.met["services lost"] += 1

    def at_work(self) -> list[Attempt]:
        """Attempts under way, of workers that are there and not stopped, in any order."""
        children = {child for worker in self.workers for child in worker.children()} - self.stopped
        under_way = Attempt.objects.filter(workflow__in=self.given, closed_at=None).order_by("?")
        return [attempt for attempt in under_way if pid_of(attempt) in children]

    def lose_a_worker(self) -> None:
        """In the midst of a run, if there is one under way; in each of the ways, in turn."""
        for attempt in self.at_work()[:1]:
            way = LOSSES[self.met["a worker lost"] % len(LOSSES)]
            self.met["a worker lost"] += self.lose(attempt, way)

    def lose(self, attempt: Attempt, way: str) -> bool:
        """Lose its worker, or a connection of it. False if that is gone already."""
        worker = pid_of(attempt)
        is_lost = end_connection(ROLES[way], attempt.worker) if way in ROLES else send(worker, SIGNALS[way])
        self.met[way] += is_lost
        if SIGNALS.get(way) == signal.SIGSTOP:
            self.stopped.add(worker)
        if way == "stopped past its lease":
            Timer(2 * definitions.LEASE, self._let_go_on, [worker]).start()
        return is_lost

    def _let_go_on(self, worker: int) -> None:
        send(worker, signal.SIGCONT)
        self.stopped.discard(worker)

    def cancel(self, pk: int) -> bool:
        """False if it has come to its end, or is asked to come to it, already."""
        with suppress(NotAllowed):
            return bool(operations.cancel(pk, user=self.person, reason="Asked for by phone."))
        return False

    def patient(self, workflow_type: str) -> str:
        """Another patient, who has an account."""
        email = f"{workflow_type}.{self.seed}.{len(self.given)}@example.com"
        return self.sandbox.account(email=email)["patient_uuid"]

    def _enter(self, sample: Sample) -> Workflow:
        if sample.account:
            self.sandbox.account(**sample.account)
        workflow = engine.submit(sample.payload, workflow_type="onboarding", idempotency_key=sample.idempotency_key)
        self.given[workflow.pk] = sample
        return workflow

    # --- What comes of it ---------------------------------------------------------------------------

    def wait_until_at_rest(self, seconds: float = PATIENCE) -> None:
        """Answer what people are asked, until everything is COMPLETE or FAILED and every death is told."""
        self.wait_until(self.at_rest, seconds)

    def wait_until(self, look: Callable[[], Any], seconds: float = PATIENCE) -> None:
        until(look, seconds=seconds, what=self.what_is_left)

    def hurry(self) -> None:
        """Let every back-off be over, of rows that nobody holds."""
        with transaction.atomic():
            off = Workflow.objects.filter(
                pk__in=self.given, status="PENDING", waiting_for="", invisible_until__gt=Now()
            )
            rows = off.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True)
            Workflow.objects.filter(pk__in=list(rows)).update(invisible_until=Now())
        if not Service.objects.filter(opened_at__isnull=False).exists():  # else they are rescheduled again
            FollowUp.objects.filter(workflow__in=self.given, due_at__gt=Now()).update(due_at=Now())

    def at_rest(self) -> bool:
        self.answer()
        pending = Workflow.objects.filter(pk__in=self.given, status="PENDING")
        # Of one that was cancelled while its host was lost nobody tells: no worker comes by any more.
        untold = Attempt.objects.filter(workflow__in=self.given, closed_at=None, workflow__cancelled_at=None)
        to_do = FollowUp.objects.filter(workflow__in=self.given, due_at__isnull=False)
        return not pending.exists() and not untold.exists() and not to_do.exists()

    def what_is_left(self) -> str:
        rows = Workflow.objects.with_state().filter(pk__in=self.given, status="PENDING")
        left = [(row.pk, row.state, row.current_step, row.waiting_for, row.last_error_message) for row in rows]
        to_do = list(FollowUp.objects.filter(workflow__in=self.given).values("workflow", "step", "due_at", "tries"))
        return f"seed {self.seed}, {len(left)} left: {left[:10]}, to be followed up: {to_do}\n{self.output[-5000:]}"

    @property
    def output(self) -> str:
        return "".join(worker.output for worker in self.workers)

    def stop(self) -> None:
        """Stop the workers in good order, those too that have just been started."""
        for worker in self.workers:
            until(lambda: worker.children() or worker.process.poll() is not None, what=lambda: worker.output)  # noqa: B023
            worker.signal(signal.SIGTERM)
        assert [worker.wait(60) for worker in self.workers] == [0] * len(self.workers), self.output

    # --- People, who tell the truth -----------------------------------------------------------------

    @cached_property
    def person(self) -> User:
        return User.objects.create_superuser(f"ada-{self.seed}")

    @cached_property
    def another_person(self) -> User:
        return User.objects.create_superuser(f"ben-{self.seed}")

    def answer(self) -> None:
        """Approve what people are asked; whether a call has happened they read in the sandbox's log.

        What could not be undone is to be tried again.
        """
        for task in ManualTask.objects.filter(workflow__in=self.given, state="open"):
            try:
                self._answer(task)
            except NotAllowed:  # it has been closed just now, with a workflow that was cancelled
                if _is_asked(task):
                    raise

    def _answer(self, task: ManualTask) -> None:
        if task.task_type == "undo_in_doubt":
            self.deal_with_undo(task)
        elif task.task_type != "effect_in_doubt":
            operations.approve(task.pk, user=self.person)
        elif (effect := self.performed_under(key := dict(task.facts)["Idempotency key"])) is not None:
            operations.approve(task.pk, user=self.person, answer=effect)
        else:
            operations.reject(task.pk, user=self.person, reason=f"There is no {key}.")

    def deal_with_undo(self, task: ManualTask) -> None:
        operations.reject(task.pk, user=self.person, reason="It is up again.")

    def performed_under(self, key: str) -> dict[str, str] | None:
        """What was answered to a key, of what a step returns; None if nothing was performed under it."""
        if not (lines := self.sandbox.effects(idempotency_key=key)):
            return None
        answer = self.sandbox.answer_to(lines[0]["service"], key) or {}
        return {name: value for name, value in answer.items() if name in definitions.Context.model_fields}


class Requests:
    """Counts the requests for an operation from now on, those that the sandbox answers from memory too.

    By a fault that does no harm. One that is to do some must have been put in force before.
    """

    def __init__(self, sandbox: SandboxProcess, service: str, operation: str) -> None:
        self.sandbox = sandbox
        self.fault = sandbox.fault(service, operation, "slow", delay_s=0)["id"]

    def count(self) -> int:
        return fired(self.sandbox)[self.fault]


def _is_asked(task: ManualTask) -> bool:
    """Whether anybody still heeds an answer to it."""
    task.refresh_from_db()
    return task.state == ManualTask.State.OPEN and not store.cancellation(task.workflow_id)


def fired(sandbox: SandboxProcess) -> dict[int, int]:
    """How often each fault in force has struck, by its id."""
    faults = sandbox.http.get("/_faults").raise_for_status().json()["faults"]
    return {fault["id"]: fault["fired"] for fault in faults}


def pid_of(attempt: Attempt) -> int:
    """Of its worker."""
    return int(attempt.worker.rpartition(":")[2])


def send(pid: int, number: signal.Signals) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def end_connection(role: str, worker: str) -> bool:
    """Let the server end a connection of the worker (host:process), as an administrator or a failover does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
            [f"onramp {role} {worker}"],
        )
        return (True,) in cursor.fetchall()


# --- The verdict --------------------------------------------------------------------------------------


def assert_nothing_twice(system: System, *known: WorkflowDefinition) -> None:
    """Every workflow given is at rest where it should be, and everything was done once, and is written down.

    `known` are the definitions of our own that took part.
    """
    for words in ("the engine itself failed", "it refused a statement of the engine's own"):
        _, fault, told = system.output.partition(words)
        assert not fault, told[:4000]
    log = system.sandbox.effects()
    assert_each_key_once(log)
    definition_of = {each.name: each for each in (*known, definitions.ONBOARDING)}
    rows = Workflow.objects.in_bulk(list(system.given))
    strays = {effect["idempotency_key"] for effect in log} - {
        effect["idempotency_key"] for row in rows.values() for effect in of(row, log)
    }
    assert not strays, f"keys of nobody: {strays}"
    for pk, sample in system.given.items():
        row, own = rows[pk], of(rows[pk], log)
        each_step_once(row, own)
        history_is_complete(row)
        if row.cancelled_at:  # at any step: what the ledger says of it is the audit's business
            continue
        assert_the_ledger_is_right(row, log, definition_of[row.workflow_type])
        if sample:
            is_as_expected(row, own, sample)
        elif row.last_error_code != "duplicate_of":
            assert row.status == "COMPLETE", (row.status, row.current_step, row.last_error_message)


def assert_each_key_once(log: Log) -> None:
    counts = Counter((effect["service"], effect["idempotency_key"]) for effect in log)
    assert not {key: count for key, count in counts.items() if count > 1}


def each_step_once(workflow: Workflow, own: Log) -> None:
    """Whatever the keys say: one charge a patient, one message a patient."""
    counts = Counter((effect["patient_uuid"], effect["service"], effect["operation"]) for effect in own)
    assert not {what: count for what, count in counts.items() if count > 1}, (workflow.pk, own)


def assert_the_ledger_is_right(row: Workflow, log: Log, definition: WorkflowDefinition) -> None:
    wrong = what_is_wrong(row, list(Effect.objects.filter(workflow=row)), log, definition)
    assert not wrong, (row.pk, wrong, of(row, log))


def history_is_complete(workflow: Workflow) -> None:
    """Every attempt is closed, and an event tells how it ended; the last of them is the workflow's end.

    After that there may only be a request to cancel, which came too late; and, of one that was cancelled while nobody
    held it, how the worker died that had held it last, or nothing if its supervisor died with it.
    """
    attempts = list(Attempt.objects.filter(workflow=workflow).order_by("number"))
    latest = attempts[-1] if attempts else None
    told = Counter(Event.objects.filter(workflow=workflow).values_list("attempt", "kind"))
    for attempt in attempts:
        may_be_open = workflow.cancelled_at and attempt is latest
        assert attempt.outcome or may_be_open, (workflow.pk, attempt.number, "is open")
        kind = TOLD_BY.get(attempt.outcome)
        if attempt.outcome == "retry" and any(entry.get("undo") for entry in attempt.steps):
            kind = "undo_failed"
        if attempt.outcome == "failed" and told[attempt.number, "cancelled"]:
            kind = "cancelled"
        if attempt.outcome == "failed" and told[attempt.number, "duplicate"]:
            kind = "duplicate"
        if attempt.outcome == "follow_up_failed" and told[attempt.number, "follow_up_given_up"]:
            kind = "follow_up_given_up"
        if kind and not (attempt.outcome == "put_back" and not told[attempt.number, kind]):
            assert told[attempt.number, kind] == 1, (workflow.pk, attempt.number, attempt.outcome, told)
        others = set(TOLD_BY.values()) - {kind, "put_back"}
        assert not [other for other in others if told[attempt.number, other]], (workflow.pk, attempt.number, told)
    assert [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))
    may_follow = ["cancel_requested", "cancel_too_late", *(DEATHS if workflow.cancelled_at else ())]
    events = Event.objects.filter(workflow=workflow).exclude(kind__in=may_follow)
    for completed in [attempt for attempt in attempts if attempt.outcome == "complete"]:
        events = events.exclude(attempt__gt=completed.number)
        followed = {attempt.outcome for attempt in attempts if attempt.number > completed.number}
        assert followed <= {*OF_FOLLOW_UPS, *DEATHS}, (workflow.pk, followed)
    last = events.latest("id")
    ends = {"COMPLETE": {"completed"}, "FAILED": {"failed", "compensated", "cancelled", "duplicate"}}
    assert last.kind in ends[workflow.status], (workflow.pk, told)
    assert not workflow.compensating


def is_as_expected(workflow: Workflow, own: Log, sample: Sample) -> None:
    assert (workflow.status, workflow.last_error_code) == (sample.status, sample.code), workflow.last_error_message
    did = [(effect["service"], effect["operation"]) for effect in own]
    # What is followed up is done, once the workflow is complete.
    may_be_missing = set(BEST_EFFORT)
    if workflow.status == "COMPLETE":
        may_be_missing -= {each for each in BEST_EFFORT if each[1] in FOLLOWED_UP - refused(workflow)}
    if workflow.context.get("payment_status") == "payment_due":
        may_be_missing |= {("payments", "charge"), ("payments", "refund")}
    assert set(did) <= set(sample.effects), (workflow.pk, did)
    assert set(sample.effects) - may_be_missing <= set(did), (workflow.pk, did)


def refused(workflow: Workflow) -> set[str]:
    """The best-effort steps that were let go for good, by a real answer of their service."""
    answer = {"detail__error_class": "workflows.errors.StepError", "detail__error_message__contains": " refused "}
    let_go = Event.objects.filter(workflow=workflow, kind__in=("best_effort_failed", "follow_up_given_up"), **answer)
    return set(let_go.values_list("step", flat=True))


def outcomes(system: System) -> Counter[str]:
    """How the attempts of all workflows ended."""
    return Counter(Attempt.objects.filter(workflow__in=system.given).values_list("outcome", flat=True))
