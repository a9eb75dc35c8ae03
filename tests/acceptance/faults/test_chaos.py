"""A minute in which everything goes wrong at once with onboarding; then quiet, and everything comes to rest.

Each kind of fault must have struck, and each verdict must have been reached: a run in which one was not proves less
than it seems, and fails.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from tests.acceptance.faults import definitions
from tests.acceptance.faults.audit import Audit, of
from tests.acceptance.faults.harness import DEATHS, ONCE, System, assert_nothing_twice, outcomes, pid_of, refused
from tests.acceptance.faults.money import Till
from tests.acceptance.faults.test_kill import CALL, OF_CALLS
from workflows.errors import NotAllowed
from workflows.features.outages import operations as services
from workflows.models import Attempt, CircuitEvent, Effect, Event, FollowUp, ManualTask, Service, Workflow

# Beside another test its strikes come too late: it waits minutes for the seldom ones.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.alone]

SECONDS = 60.0
# On a machine where the seldom ones have not come up by then it goes on, this long at the most.
AT_THE_LONGEST = 240.0
AT_ONCE = 5  # strikes
HOSTS, PROCESSES = 3, 3  # and one more, of those that pay
BACKLOG = 15
PARKED = 40  # when so many wait for services, no more come: they would all have to be worked off in the quiet
THAT_PAY = 20  # under way at a time; most of them are rescheduled, or wait for a person

WEIGHTS = {
    "killed": 10,
    "crashed": 3,
    "stopped past its lease": 8,
    "stopped for good": 4,
    "its claim ended": 15,
    "its attempt log ended": 12,
    "a host lost": 6,
    "services lost": 3,
    "a service fails": 30,
    "dead at a boundary": 20,
    "cancelled by a person": 6,
}
# These take long to be noticed, or long to be made good.
AT_MOST = {"stopped for good": 6, "a host lost": 4, "services lost": 8}
BOUNDARIES = [*OF_CALLS, *(f"{boundary}:{call}" for boundary in CALL for call in ("collect", "undo collect"))]
ADDING_UP = "before_chore:add up"  # its transaction has counted what is new, and not committed
BOUNDARIES.append(ADDING_UP)

# The last one is seldom: a call that was answered so is stuck until the quiet, or until a person has said no.
SANDBOX = {"status": 8, "slow": 4, "timeout_after": 4, "drop_after": 4, "half": 4, "replay_500": 1}
# Calls of once steps, more often; and others, whose repetition does no harm.
IN_DOUBT = [("accounts", "create_account"), ("visits", "start_visit"), ("programs", "enroll")]
IN_DOUBT += [("payments", "charge")] * 3
OTHERS = [("accounts", "find_account"), ("payments", "find_charge"), ("profiles", None), ("insurance", None)]

# Outages of a whole service; of the last kind, of all of them. What is let go in the first one is followed up.
REFUSED = "services refuse connections"
OUTAGES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "a service is down": (["messages"], {"kind": "status", "status": 503}),
    "charging or enrolling is down": (["payments", "programs"], {"kind": "status", "status": 503}),
    "a service hangs": (["payments", "accounts", "profiles", "visits"], {"kind": "silent"}),
    "a service is limited": (["payments", "accounts", "profiles", "visits"], {"kind": "capacity", "per_second": 1}),
    REFUSED: ([], {}),
}
LASTS = (3.5, 5.5)  # seconds: long enough for a circuit to open, which takes two at the least
PAUSE = 1.5  # from one to the next
MET_BY = 3  # calls
# When the next trial is further ahead than this, the owners of a service that is well again say so.
TOO_FAR = timedelta(seconds=3)
# The codes of what the clients, and the engine, raise of a service that is unavailable.
OF_AN_OUTAGE = ("service_unavailable", "unavailable", "too_many_requests", "not_ready", "unreachable", "no_answer")

# How it was found out what had become of a call in doubt.
WAYS = {
    "looked up, found",
    "looked up, not found, called again",
    "repeated under its key",
    "a person's yes",
    "a person's no, called again under a new key",
}
MUST_BE_MET = {
    *(*WEIGHTS, *SANDBOX, *OUTAGES, *WAYS, "fenced"),
    *("died adding up", "circuit opened", "circuit closed", "parked", "followed_up"),
    *(f"told as {death}" for death in DEATHS),
    # Of those that pay:
    *("complete", "failed and undone", "failed after the call", "gave up in doubt", "refused in doubt"),
    *("cancelled", "cancelled in doubt", "asked when the key was over", "looked up"),
}


class Chaos:
    def __init__(self, system: System, till: Till, latches: Path) -> None:
        self.system, self.till = system, till
        self.both = (system, till)
        self.random = till.random
        self.audit = Audit(system.sandbox, {each.name: each for each in (definitions.ONBOARDING, definitions.ASKED)})
        self.struck: Counter[str] = Counter()
        self.spared: set[int] = set()  # workflows that have met one of ONCE
        self.latches = latches
        for boundary in BOUNDARIES:
            (latches / boundary).touch()  # passed already: it does nothing until it is armed
        self.armed: set[str] = set()
        self.outages = self.have_outages()
        for each in (*[system] * HOSTS, till):
            self.start_a_host(each)

    def start_a_host(self, of: System) -> None:
        environ = {"ONRAMP_FAILPOINT": ",".join(BOUNDARIES), "ONRAMP_FAILPOINT_ONCE": str(self.latches)}
        environ |= {"WORKER_LEASE_SECONDS": str(definitions.LEASE), "SERVICES_TIMEOUT": "1"}
        of.work(*(() if of is self.till else ("ONBOARDING", "ASKED")), processes=PROCESSES, **environ)

    def run(self) -> None:
        # So many that some meet a charge that only a person can tell about: they have not happened.
        self.system.sandbox.fault("payments", "charge", "status", status=500, count=20)
        began = time.monotonic()
        late: set[str] = set()
        while (passed := time.monotonic() - began) < SECONDS or (passed < AT_THE_LONGEST and (late := self.missing())):
            self.feed()
            next(self.outages, None)
            for _ in range(1 if late else AT_ONCE):  # a slow machine gets nowhere under as many
                self.strike(late)
            self.go_on()

    def feed(self) -> None:
        pending = Workflow.objects.filter(status="PENDING")
        due = pending.filter(queue="default", invisible_until__lte=Now())
        if due.count() < BACKLOG and pending.exclude(parked_on="").count() < PARKED:
            self.system.submit(4)
            for _ in range(4):
                self.system.enter("asked")
        if pending.filter(queue=definitions.MONEY).count() < THAT_PAY:
            self.till.enter_plan(next(self.till.plans))

    def go_on(self) -> None:
        """People answer and cancel; and the ledger of some that nobody holds is held against the log."""
        self.till.cancel_as_planned()
        for each in self.both:
            each.answer()
        self.audit.look_around(self.system.given, self.random)
        self.till.audit.look_around(self.till.given, self.random)
        for name in Service.objects.filter(retry_at__gt=timezone.now() + TOO_FAR).values_list("name", flat=True):
            with suppress(NotAllowed):  # it has just been tried
                services.try_now(name, user=self.system.person, reason="Its owners say that it is up again.")

    def be_quiet(self) -> None:
        """No fault any more. What is stopped for good is left to its supervisor."""
        self.outages.close()
        for each in self.both:
            each.sandbox.clear_faults()
        for boundary in BOUNDARIES:
            (self.latches / boundary).touch()

    def is_at_rest(self) -> bool:
        for each in self.both:
            each.hurry()
        self.go_on()
        return all(each.at_rest() for each in self.both)

    # --- What strikes --------------------------------------------------------------------------------

    def strike(self, late: set[str]) -> None:
        """One of those that are late; if none is, of all."""
        weights = {kind: weight for kind, weight in WEIGHTS.items() if kind in late} or WEIGHTS
        (kind,) = self.random.choices(list(weights), list(weights.values()))
        strikes = {
            "a host lost": self.lose_a_host,
            "services lost": self.random.choice(self.both).lose_the_services,
            "a service fails": self.fail_a_service,
            "dead at a boundary": self.arm,
            "cancelled by a person": self.cancel,
        }
        if self.met_by_strikes()[kind] < AT_MOST.get(kind, 10**6):
            strikes.get(kind, lambda: self.lose_a_worker(kind))()

    def lose_a_worker(self, way: str) -> None:
        system = self.random.choice((*[self.system] * HOSTS, self.till))
        attempts = [each for each in system.at_work() if way not in ONCE or each.workflow_id not in self.spared]
        if attempts and system.lose(attempts[0], way) and way in ONCE:
            self.spared.add(attempts[0].workflow_id)

    def lose_a_host(self) -> None:
        of = self.random.choice((*[self.system] * HOSTS, self.till))
        for attempt in of.at_work()[:1]:
            for lost in [worker for worker in of.workers if pid_of(attempt) in worker.children()]:
                lost.kill()
                of.workers.remove(lost)
                self.start_a_host(of)
                self.struck["a host lost"] += 1

    def fail_a_service(self) -> None:
        kind = self.random.choices(list(SANDBOX), list(SANDBOX.values()))[0]
        service, operation = self.random.choice(IN_DOUBT * 3 + OTHERS)
        status = self.random.choice([429, 500, 500, 500, 500, 503])
        how: dict[str, Any] = {"status": {"status": status}, "slow": {"delay_s": 1.2}}.get(kind, {})
        self.system.sandbox.fault(service, operation, kind, count=1, **how)
        self.struck["a service fails"] += 1

    def arm(self) -> None:
        """Let the next worker that comes by die there; it counts when one did."""
        self.note_deaths()
        boundary = ADDING_UP if not self.struck["died adding up"] else self.random.choice(BOUNDARIES)
        self.armed.add(boundary)
        (self.latches / boundary).unlink(missing_ok=True)

    def note_deaths(self) -> None:
        died = {boundary for boundary in self.armed if (self.latches / boundary).exists()}
        self.struck["dead at a boundary"] += len(died)
        self.struck["died adding up"] += ADDING_UP in died
        self.armed -= died

    def cancel(self) -> None:
        """At whatever step it is, and whatever it waits for."""
        under_way = Workflow.objects.filter(pk__in=self.system.given, status="PENDING", compensating=False)
        for pk in under_way.order_by("?").values_list("pk", flat=True)[:1]:
            self.struck["cancelled by a person"] += self.system.cancel(pk)

    def have_outages(self) -> Iterator[None]:
        """One at a time, each kind twice; one that hardly a call has met comes again."""
        for kind in (planned := self.random.sample(list(OUTAGES) * 2, 2 * len(OUTAGES))):
            services, how = OUTAGES[kind]
            if kind == REFUSED:
                self.system.lose_the_services(for_seconds=self.random.uniform(*LASTS))
                self.struck[kind] += 1
            else:
                fault = self.system.sandbox.fault(self.random.choice(services), None, **how)
                yield from _for(self.random.uniform(*LASTS))
                is_met = self.system.sandbox.lift_fault(fault["id"])["fired"] >= MET_BY
                self.struck[kind] += is_met
                planned += [] if is_met else [kind]
            yield from _for(PAUSE)

    # --- What was met --------------------------------------------------------------------------------

    def met_by_strikes(self) -> Counter[str]:
        return self.struck + self.system.met + self.till.met

    def met(self) -> Counter[str]:
        """How often each thing that this is there for has happened so far."""
        self.note_deaths()
        met = self.met_by_strikes() + self.till.what_was_met() + how_doubts_ended(self.system)
        for fault in self.system.sandbox.http.get("/_faults").raise_for_status().json()["faults"]:
            met[fault["kind"]] += fault["fired"]
        met.update(f"circuit {kind}" for kind in CircuitEvent.objects.values_list("kind", flat=True))
        events = Event.objects.filter(workflow__in=self.system.given, kind__in=("parked", "followed_up"))
        met.update(events.values_list("kind", flat=True))
        met.update(f"told as {outcome}" for outcome in (outcomes(self.system) + outcomes(self.till)).elements())
        met["fenced"] = sum(each.output.count("nothing is decided: ClaimLost") for each in self.both)
        return met

    def missing(self) -> set[str]:
        return MUST_BE_MET - set(+self.met())


def _for(seconds: float) -> Iterator[None]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield


def how_doubts_ended(system: System) -> Counter[str]:
    """Of each effect that an attempt told to be in doubt: how it was found out what had become of it."""
    ways: Counter[str] = Counter()
    in_doubt = {
        (attempt.workflow_id, entry["step"])
        for attempt in Attempt.objects.filter(workflow__in=system.given)
        for entry in attempt.steps
        if entry["outcome"] == "failed" and entry.get("error_class", "").endswith("UnknownOutcome")
    }
    for effect in Effect.objects.filter(workflow__in=system.given, state="done").select_related("workflow"):
        if (effect.workflow_id, effect.step) in in_doubt:
            ways[_how_it_ended(effect)] += 1
    return ways


def _how_it_ended(effect: Effect) -> str:
    if effect.settled_by == "lookup":
        return "looked up, found"
    if effect.settled_by != "call":
        return "a person's yes"
    if effect.generation > 1:
        return "a person's no, called again under a new key"
    definition = definitions.ASKED if effect.workflow.workflow_type == "asked" else definitions.ONBOARDING
    is_looked_up = definition.find_or_removed_step(effect.step).lookup
    return "looked up, not found, called again" if is_looked_up else "repeated under its key"


# --- The verdict --------------------------------------------------------------------------------------


def assert_no_verdict_for_an_outage(system: System, till: Till) -> None:
    """No workflow has failed for one, and nobody's money is held by one.

    But for those that are told to have less patience with a service than an outage takes.
    """
    patient = [pk for pk, plan in till.plan_of.items() if "patience" not in plan.end]
    failed = Event.objects.filter(workflow__in=[*system.given, *patient], kind="failed")
    for_one = list(failed.filter(detail__error_code__in=OF_AN_OUTAGE).values_list("workflow", "step", "detail"))
    assert not for_one, for_one
    no_card = Event.objects.filter(kind="best_effort_failed", step="attach_payment_card")
    assert not no_card.filter(detail__error_code__in=OF_AN_OUTAGE), "an outage is no declined card"
    log = system.sandbox.effects()
    for row in Workflow.objects.filter(pk__in=system.given, workflow_type="onboarding"):
        did = {effect["operation"] for effect in of(row, log)}
        if "charge" in did and not _is_settled(did):
            asked = ManualTask.objects.filter(workflow=row, state=ManualTask.State.OPEN)
            assert asked.exists(), (row.pk, row.status, row.last_error_message, did)


def _is_settled(did: set[str]) -> bool:
    """Of a patient who was charged: whether they are enrolled, or have their money back; one of the two."""
    return ("enroll" in did and "withdraw" not in did) != ("refund" in did)


def assert_all_is_followed_up(system: System) -> None:
    """What was let go is done; but for what its service has refused."""
    for each in FollowUp.objects.filter(workflow__in=system.given).select_related("workflow"):
        why = Event.objects.filter(workflow=each.workflow, kind="follow_up_given_up").values_list("step", "detail")
        assert each.step in refused(each.workflow), (each.workflow_id, each.step, list(why))


def test_in_a_minute_of_chaos_nothing_is_done_twice_or_forgotten(
    slow_disk: None, system: System, till: Till, seed: int, tmp_path: Path
) -> None:
    (latches := tmp_path / "latches").mkdir()
    chaos = Chaos(system, till, latches)
    began = time.monotonic()
    chaos.run()
    quiet_at, met = time.monotonic(), chaos.met()
    chaos.be_quiet()
    system.wait_until(chaos.is_at_rest)
    took = f"{quiet_at - began:.0f} s, and {time.monotonic() - quiet_at:.0f} s until all was at rest"
    met |= chaos.met()  # the services' faults are cleared, and their counts with them
    system.stop()
    till.stop()
    given = f"{len(system.given)} workflows and {len(till.given)} that pay"
    report = f"seed {seed}, {took}, {given}: {dict(met)}; looks: {chaos.audit.seen}, {till.audit.seen}"
    print(report)  # noqa: T201 (the figures, for -s and for whoever reads of a failure)
    till.assert_the_books_are_right()
    chaos.audit.look(system.given)
    chaos.audit.assert_nothing_wrong(seed)
    assert_no_verdict_for_an_outage(system, till)
    assert_all_is_followed_up(system)
    assert_nothing_twice(system, definitions.ASKED)
    assert not Workflow.objects.exclude(parked_on="").exists(), "nothing stays parked"
    assert not (missed := MUST_BE_MET - set(+met)), f"not met: {missed}; {report}"
