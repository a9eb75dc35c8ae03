"""A minute in which everything goes wrong at once, ten times a second; then quiet, and everything comes to rest.

Each kind of fault must have struck, and each verdict must have been reached: a run in which one was not proves less
than it seems, and fails.
"""

import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now

from tests.acceptance.faults import definitions
from tests.acceptance.faults.audit import Audit
from tests.acceptance.faults.doubts import how_doubts_ended
from tests.acceptance.faults.harness import System, assert_nothing_twice, end_connection, outcomes
from tests.acceptance.faults.money import Till
from tests.acceptance.faults.outages import (
    OUTAGES,
    Outages,
    assert_all_is_followed_up,
    assert_no_verdict_for_an_outage,
)
from tests.acceptance.faults.road import Road
from tests.acceptance.faults.test_kill import CALL, OF_CALLS
from tests.processes import Runworker
from workflows.models import Attempt, Event, Workflow

# Beside another test its strikes come too late: it waits minutes for the seldom ones.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

SECONDS = 60.0
# On a machine where the seldom ones have not come up by then it goes on, this long at the most.
AT_THE_LONGEST = 180.0
A_SECOND = 10
IN_A_BURST = 20
HOSTS, PROCESSES = 3, 3  # and one more, of those that pay
BACKLOG = 15
PARKED = 40  # when so many wait for services, no more come: they would all have to be worked off in the quiet
THAT_PAY = 40  # under way at a time; most of them are rescheduled, or wait for a person
LOOK_EVERY = 0.5
LEASE = 2
# The supervisor ends what is overdue ten seconds past its step's timeout, twice that where a lookup may be under way.
HANGS_UNTIL = 45.0

# The last one is seldom: a call that was answered so is stuck until the quiet, or until a person has said no.
SANDBOX = {"status": 8, "slow": 4, "timeout_after": 4, "drop_after": 4, "half": 4, "replay_500": 1}
# Calls of once steps; and others, whose repetition does no harm.
IN_DOUBT = [
    ("accounts", "create_account"),
    ("visits", "start_visit"),
    ("programs", "enroll"),
    *[("payments", "charge")] * 3,
]
OTHERS = [("accounts", "find_account"), ("payments", "find_charge"), ("profiles", None), ("insurance", None)]

WEIGHTS = {
    "kill a worker": 10,
    "crash a worker": 3,
    "stop a worker and let it go on": 8,
    "stop a worker for good": 4,
    "lose a host": 2,
    "end a claim": 15,
    "end an attempt log": 12,
    "a service fails": 30,
    "die at a boundary": 20,
    "lose the services": 3,
    "cancel a workflow": 6,
}
# These take long to be noticed, or long to be made good.
AT_MOST = {"stop a worker for good": 6, "lose a host": 4, "lose the services": 8}

WAYS = {
    "looked up, found",
    "looked up, not found, called again",
    "repeated under its key",
    "a person's yes",
    "a person's no, called again under a new key",
}
# What must have become of workflows that pay: they fail, are cancelled, and their keys are forgotten.
ENDS_TO_MEET = {
    *("complete", "failed and undone", "failed after the call", "gave up in doubt", "refused in doubt"),
    *("cancelled", "cancelled in doubt", "asked when the key was over", "looked up"),
}
BOUNDARIES = [*OF_CALLS, *(f"{boundary}:{call}" for boundary in CALL for call in ("collect", "undo collect"))]


class Chaos:
    def __init__(self, system: System, till: Till, road: Road, latches: Path) -> None:
        self.system = system
        self.till = till
        self.random = random.Random(system.seed)
        self.audit = Audit(system.sandbox, {each.name: each for each in (definitions.ONBOARDING, definitions.ASKED)})
        self.look_at = 0.0
        self.latches = latches
        self.struck: Counter[str] = Counter()
        # What was missing when the time was over, and every ten seconds from then on.
        self.came_late: list[set[str]] = []
        self.stopped: dict[int, float] = {}  # until when, by process
        self.hung: set[int] = set()
        self.armed: set[str] = set()
        for boundary in BOUNDARIES:
            (latches / boundary).touch()  # passed already: it does nothing until it is armed
        self.outages = Outages(system, road, self.random, self.struck)
        self.hosts = [(of, self.host(of)) for of in (*[system] * HOSTS, till)]
        self.kinds: dict[str, Callable[[], bool]] = {
            "kill a worker": self.kill,
            "crash a worker": self.crash,
            "stop a worker and let it go on": self.stop,
            "stop a worker for good": self.hang,
            "lose a host": self.lose_a_host,
            "end a claim": lambda: self.end("claim"),
            "end an attempt log": lambda: self.end("attempt_log"),
            "a service fails": self.fail_a_service,
            "die at a boundary": self.arm,
            "lose the services": self.lose_the_services,
            "cancel a workflow": self.cancel,
        }

    def host(self, of: System) -> Runworker:
        environ = {"ONRAMP_FAILPOINT": ",".join(BOUNDARIES), "ONRAMP_FAILPOINT_ONCE": str(self.latches)}
        environ |= {} if of is self.till else self.outages.environ
        return of.work(
            *(() if of is self.till else ("ONBOARDING", "ASKED")),
            processes=PROCESSES,
            WORKER_LEASE_SECONDS=str(LEASE),
            SERVICES_TIMEOUT="1",
            **environ,
        )

    def run(self) -> None:
        # So many that some meet a charge that only a person can tell about: they have not happened.
        self.system.sandbox.fault("payments", "charge", "status", status=500, count=20)
        began = since = time.monotonic()
        strikes, a_second = 0, float(A_SECOND)
        until = began + SECONDS
        while time.monotonic() < until:
            self.feed()
            self.let_go_on()
            self.outages.strike()
            self.outages.let_be_tried()
            # As many as are due: a machine that is busy strikes in bursts, and if too busy for those leaves some out.
            due = int((time.monotonic() - since) * a_second)
            for _ in range(min(due - strikes, IN_A_BURST)):
                self.strike()
            strikes = due
            self.till.cancel_as_planned()
            self.answer_and_look()
            time.sleep(0.05)
            if time.monotonic() >= until and (late := self.missing()) and until < began + AT_THE_LONGEST:
                self.came_late.append(late)
                # A machine that is slow gets nowhere under as many strikes a second.
                since, strikes, a_second = time.monotonic(), 0, a_second * 0.7
                until = since + 10

    def missing(self) -> set[str]:
        """The kinds of faults that have not struck, and the verdicts that were not reached, so far."""
        told, ways = outcomes(self.system), {way for _, way in how_doubts_ended(self.system)}
        self.note_deaths()
        return {
            *(kind for kind in (*WEIGHTS, *OUTAGES) if not self.struck[kind]),
            *(kind for kind, count in {**self.services(), **self.outages.met()}.items() if not count),
            *({"crashed", "killed", "vanished", "lost", "interrupted"} - set(told + outcomes(self.till))),
            *({"fenced"} if not self.fenced() else ()),
            *(WAYS - ways),
            *(ENDS_TO_MEET - set(+self.till.what_was_met())),
        }

    def services(self) -> Counter[str]:
        """How often each kind of fault of the services has struck."""
        faults = self.system.sandbox.http.get("/_faults").raise_for_status().json()["faults"]
        return Counter({kind: sum(each["fired"] for each in faults if each["kind"] == kind) for kind in SANDBOX})

    def fenced(self) -> int:
        return (self.system.output + self.till.output).count("nothing is decided: ClaimLost")

    def feed(self) -> None:
        pending = Workflow.objects.filter(status="PENDING")
        due = pending.filter(queue="default", invisible_until__lte=Now())
        if due.count() < BACKLOG and pending.exclude(parked_on="").count() < PARKED:
            self.system.submit(4)
            for _ in range(4):
                self.system.enter("asked")
        if pending.filter(queue=definitions.MONEY).count() < THAT_PAY:
            self.till.enter_plan(next(self.till.plans))

    def answer_and_look(self) -> None:
        """People answer; and now and then the ledger of some that nobody holds is held against the log."""
        self.system.answer()
        self.till.answer()
        if time.monotonic() >= self.look_at:
            self.look_at = time.monotonic() + LOOK_EVERY
            self.audit.look_around(self.system.given, self.random)
            self.till.audit.look_around(self.till.given, self.random)

    def strike(self) -> None:
        kind = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if self.struck[kind] < AT_MOST.get(kind, 10**6) and self.kinds[kind]():
            self.struck[kind] += 1

    def quiet(self) -> None:
        """No fault any more. What is stopped for good is left to its supervisor."""
        self.outages.end()
        self.system.sandbox.clear_faults()
        self.till.sandbox.clear_faults()
        self.note_deaths()
        for boundary in BOUNDARIES:
            (self.latches / boundary).touch()

    # --- The kinds: each says whether it has struck --------------------------------------------------

    def kill(self) -> bool:
        return self.send(signal.SIGKILL, self.a_worker())

    def crash(self) -> bool:
        """Once a workflow: three times in a row, and it would be condemned, and rightly."""
        worker = self.a_worker()
        attempt = Attempt.objects.filter(worker=name(worker), closed_at=None).first()
        crashed = {"kind": "crashed", "workflow": attempt and attempt.workflow_id}
        if attempt is None or Event.objects.filter(**crashed).exists():
            return False
        return self.send(signal.SIGSEGV, worker)

    def stop(self) -> bool:
        worker = self.a_worker()
        self.stopped[worker] = time.monotonic() + self.random.uniform(0.1, 2 * LEASE)
        return self.send(signal.SIGSTOP, worker)

    def hang(self) -> bool:
        """In the midst of a step: its supervisor ends it when that is overdue."""
        worker = self.a_worker()
        if not self.send(signal.SIGSTOP, worker):
            return False
        self.stopped[worker] = time.monotonic() + HANGS_UNTIL
        if Attempt.objects.filter(worker=name(worker), closed_at=None).exists():
            self.hung.add(worker)
            return True
        self.stopped[worker] = 0
        return False

    def lose_a_host(self) -> bool:
        of, lost = self.hosts[0]
        if self.hung.intersection(lost.children()):
            return False  # whose supervisor is to end it
        self.hosts.remove((of, lost))
        at_work = bool(Attempt.objects.filter(worker__in=map(name, lost.children()), closed_at=None))
        lost.kill()
        of.workers.remove(lost)
        self.hosts.append((of, self.host(of)))
        return at_work

    def end(self, role: str) -> bool:
        return end_connection(role, name(self.a_worker()))

    def fail_a_service(self) -> bool:
        kind = self.random.choices(list(SANDBOX), list(SANDBOX.values()))[0]
        service, operation = self.random.choice(IN_DOUBT * 3 + OTHERS)
        more: dict[str, Any] = (
            {"status": self.random.choice([429, 500, 500, 500, 500, 503])} if kind == "status" else {}
        )
        more |= {"delay_s": 1.2} if kind == "slow" else {}
        self.system.sandbox.fault(service, operation, kind, count=1, **more)
        return True

    def arm(self) -> bool:
        """Let the next worker that comes by die there; it counts when one did."""
        self.note_deaths()
        boundary = self.random.choice(BOUNDARIES)
        self.armed.add(boundary)
        (self.latches / boundary).unlink(missing_ok=True)
        return False

    def lose_the_services(self) -> bool:
        """Those of onboarding, or of the workflows that pay. It takes seconds, in which nobody is let go on."""
        self.let_go_on(within=2 * LEASE)
        self.random.choice([self.system, self.till]).lose_the_services()
        return True

    def cancel(self) -> bool:
        """At whatever step it is, and whatever it waits for."""
        under_way = Workflow.objects.filter(pk__in=self.system.given, status="PENDING", compensating=False)
        ids = list(under_way.values_list("pk", flat=True))
        return bool(ids) and self.system.cancel(self.random.choice(ids))

    def note_deaths(self) -> None:
        died = {boundary for boundary in self.armed if (self.latches / boundary).exists()}
        self.struck["die at a boundary"] += len(died)
        self.armed -= died

    # --- Workers -------------------------------------------------------------------------------------

    def a_worker(self) -> int:
        """The process of one that is not stopped; 0 when there is none just now."""
        children = [child for _, host in self.hosts for child in host.children() if child not in self.stopped]
        return self.random.choice(children) if children else 0

    def let_go_on(self, *, within: float = 0) -> None:
        """Those whose time is over; or would be, within so many seconds."""
        for worker, until in list(self.stopped.items()):
            if time.monotonic() + within > until:
                self.send(signal.SIGCONT, worker)
                del self.stopped[worker]

    def send(self, number: signal.Signals, worker: int) -> bool:
        if not worker:
            return False
        with suppress(ProcessLookupError):
            os.kill(worker, number)
            return True
        return False


def name(worker: int) -> str:
    return f"{socket.gethostname()}:{worker}"


def test_in_a_minute_of_chaos_nothing_is_done_twice_or_forgotten(
    slow_disk: None, system: System, till: Till, road: Road, seed: int, tmp_path: Path
) -> None:
    (latches := tmp_path / "latches").mkdir()
    chaos = Chaos(system, till, road, latches)
    began = time.monotonic()
    chaos.run()
    services = chaos.services()
    quiet_at = time.monotonic()
    chaos.quiet()

    def at_rest() -> bool:
        chaos.let_go_on()
        chaos.outages.let_be_tried()
        system.hurry()
        till.hurry()
        chaos.answer_and_look()
        return not chaos.stopped and system.at_rest() and till.at_rest()

    system.wait_until(at_rest)
    took = f"{quiet_at - began:.0f} s, and {time.monotonic() - quiet_at:.0f} s until all was at rest"
    missing = chaos.missing() - set(SANDBOX)  # whose faults are cleared, and their counts with them
    missing |= {kind for kind in SANDBOX if not services[kind]}
    system.stop()
    till.stop()
    ways = Counter(way for (_, way), count in how_doubts_ended(system).items() for _ in range(count))
    looks = (chaos.audit.seen, till.audit.seen)
    of_outages = chaos.outages.met()
    counts = (chaos.struck, services, of_outages, outcomes(system), ways, outcomes(till), till.what_was_met(), *looks)
    given = f"{len(system.given)} workflows and {len(till.given)} that pay"
    took += f" (late: {chaos.came_late})" if chaos.came_late else ""
    report = f"seed {seed}, {took}, {given}: {'; '.join(map(str, counts))}; fenced: {chaos.fenced()}"
    print(report)  # noqa: T201 (the figures, for -s and for whoever reads of a failure)
    till.assert_the_books_are_right()
    chaos.audit.look(system.given)
    chaos.audit.assert_nothing_wrong(seed)
    assert_no_verdict_for_an_outage(system, till)
    assert_all_is_followed_up(system)
    assert_nothing_twice(system, definitions.ASKED)
    assert not missing, f"not reached: {missing}; {report}"
