"""Outages of whole services, one at a time and each for some seconds; and what may not come of one."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.utils import timezone

from tests.acceptance.faults.harness import System, of, refused
from tests.acceptance.faults.money import Till
from tests.acceptance.faults.road import Road
from workflows import operations
from workflows.errors import NotAllowed
from workflows.models import CircuitEvent, Event, FollowUp, ManualTask, Service, Workflow

# Seconds: long enough for a circuit to open, which takes two at the least.
SHORTEST, LONGEST = 3.5, 5.5
PAUSE = 1.5  # from one to the next
MET_BY = 3  # calls
DOWN, HANGS, LIMITED = "a service is down", "a service hangs", "a service is limited"
REFUSED = "a service refuses connections"
OUTAGES = (DOWN, HANGS, LIMITED, REFUSED)
FAULTS: dict[str, dict[str, Any]] = {
    DOWN: {"kind": "status", "status": 503},
    HANGS: {"kind": "silent"},
    LIMITED: {"kind": "capacity", "per_second": 1},
}

# Those who were charged wait for this one: it is behind a road, which can be closed.
BEHIND_THE_ROAD = "programs"
# So busy that they feel a limit.
BUSY = ("payments", "accounts", "profiles", "visits")
# What is let go in an outage of this one is followed up.
FOLLOWED_UP = "messages"
# When the next trial is further ahead than this, the owners of a service that is well again say so.
TOO_FAR = timedelta(seconds=3)

# The codes of what the clients, and the engine, raise of a service that is unavailable.
OF_AN_OUTAGE = ("service_unavailable", "unavailable", "too_many_requests", "not_ready", "unreachable", "no_answer")


class Outages:
    """Those of a system's services, each kind twice; `struck` counts them, but for those that hardly a call has met."""

    def __init__(self, system: System, road: Road, randomly: random.Random, struck: Counter[str]) -> None:
        self._system = system
        self._random = randomly
        self._struck = struck
        self._road = road
        road.open()
        self._planned = randomly.sample(OUTAGES * 2, len(OUTAGES) * 2)
        self._end: Callable[[], bool] | None = None  # of the one that is on; False if hardly a call has met it
        self._until = 0.0

    @property
    def environ(self) -> dict[str, str]:
        """The way to the service behind the road."""
        return {f"{BEHIND_THE_ROAD.upper()}_URL": f"{self._road.url}/{BEHIND_THE_ROAD}"}

    def strike(self) -> None:
        """Start the next one, or end one whose time is over. One that is not met comes again."""
        if self._end and time.monotonic() >= self._until:
            self.end()
        elif not self._end and self._planned and time.monotonic() >= self._until + PAUSE:
            self._until = time.monotonic() + self._random.uniform(SHORTEST, LONGEST)
            self._end = self._refuse() if self._planned[0] == REFUSED else self._fault(self._planned[0])

    def end(self) -> None:
        if self._end:
            kind = self._planned.pop(0)
            if self._end():
                self._struck[kind] += 1
            else:
                self._planned.append(kind)
            self._end = None

    def _refuse(self) -> Callable[[], bool]:
        self._road.close()

        def end() -> bool:
            self._road.open()
            return True

        return end

    def _fault(self, kind: str) -> Callable[[], bool]:
        service = FOLLOWED_UP if kind == DOWN else self._random.choice(BUSY)
        fault = self._system.sandbox.fault(service, None, **FAULTS[kind])

        def end() -> bool:
            is_met = self._system.sandbox.lift_fault(fault["id"])["fired"] >= MET_BY
            return is_met and (kind != DOWN or self._is_followed_up())

        return end

    def _is_followed_up(self) -> bool:
        return FollowUp.objects.exists() or self.met()["followed_up"] > 0

    def let_be_tried(self) -> None:
        """Let the services be tried that are well again, if their next trial is far ahead."""
        far = Service.objects.filter(retry_at__gt=timezone.now() + TOO_FAR)
        for name in far.values_list("name", flat=True) if not self._end else ():
            with suppress(NotAllowed):  # it has just been tried
                operations.try_now(name, user=self._system.person, reason="Its owners say that it is up again.")

    # --- The verdict ------------------------------------------------------------------------------------

    def met(self) -> Counter[str]:
        """How often what must come of them has come, so far."""
        circuits = Counter(CircuitEvent.objects.values_list("kind", flat=True))
        events = Counter(Event.objects.filter(workflow__in=self._system.given).values_list("kind", flat=True))
        of_circuits = {f"a circuit {kind}": circuits[kind] for kind in ("opened", "closed")}
        return Counter(of_circuits | {kind: events[kind] for kind in ("parked", "followed_up")})


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
    left = FollowUp.objects.filter(workflow__in=system.given).select_related("workflow")
    for each in left:
        why = Event.objects.filter(workflow=each.workflow, kind="follow_up_given_up").values_list("step", "detail")
        assert each.step in refused(each.workflow), (each.workflow_id, each.step, list(why))
