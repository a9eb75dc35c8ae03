"""A batch of insurance policies, in real worker processes: each is a child, in a pool of which two workers die."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress

import pytest
from django.contrib.auth.models import User

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts
from tests.acceptance.scenarios.watching import INSURANCE_BATCH, VERIFICATION, done, until_it
from tests.processes import Runworker, is_stopped, until
from tests.scenarios import services
from workflows import operations
from workflows.models import Attempt, ManualTask, State, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

POLICIES, BUSY, UNKNOWN = 500, 40, 5
POOL = 4


def policies() -> list[str]:
    """The busy ones and the unknown ones among the others."""
    kinds = ["busy"] * BUSY + ["unknown"] * UNKNOWN + ["good"] * (POLICIES - BUSY - UNKNOWN)
    return [f"{kinds[n * 7 % POLICIES]}-{n:03}" for n in range(POLICIES)]


def test_a_batch_of_insurance_policies(runworker: Start) -> None:
    ada = User.objects.create_superuser("ada")
    batch = engine.submit({"policies": policies()}, workflow_type="insurance_batch")
    parents = runworker(INSURANCE_BATCH, VERIFICATION)
    pool = runworker(INSURANCE_BATCH, VERIFICATION, arguments=("--queue", "verification", "--processes", str(POOL)))
    complete = batch.children.filter(status="COMPLETE")
    until(lambda: complete.count() > POLICIES // 10, seconds=240, what=lambda: parents.output + pool.output)
    unasked, unheard = kill_one(pool, when="asked"), kill_one(pool, when="done")

    task = until(
        lambda: ManualTask.objects.filter(workflow=batch).first(), seconds=240, what=lambda: what_is_left(pool)
    )
    unknown = sorted(policy for policy in policies() if policy.startswith("unknown"))
    assert (task.task_type, task.facts) == ("triage", [[policy, "unknown_policy"] for policy in unknown])
    operations.approve(task.pk, user=ada, answer={"settle_as": "self_pay"})
    result = until_it(State.COMPLETE, batch, parents).context

    assert (result["verified"], result["triaged_by"]) == (POLICIES - UNKNOWN, "ada")
    verified = Counter(entry["about"] for entry in services.entries() if entry.get("done") == "verify")
    assert verified == Counter(policy for policy in policies() if not policy.startswith("unknown")), "each once"
    assert done().count("self_pay") == 1
    assert 1 < most_at_once() <= POOL
    assert Attempt.objects.filter(outcome="killed").count() == 2
    times = Counter(entry["about"] for entry in services.entries() if "asked" in entry)
    again = {policy for policy in policies() if policy.startswith("busy")} | {unasked}
    assert {policy for policy in policies() if times[policy] > 1} == again
    assert times[unheard] == (2 if unheard in again else 1), "what was done is found, and not asked for again"
    assert len(attempts(batch)) <= 4, "started them, all had ended (told twice at most), was answered"


def kill_one(pool: Runworker, *, when: str) -> str:
    """Kill a worker in the middle of a request, the last line of which is `when`; which policy it was about.

    It is stopped first, so that nothing happens between the look and the kill.
    """

    def killed() -> str:
        victim = pool.children()[0]
        try:
            os.kill(victim, signal.SIGSTOP)
        except ProcessLookupError:  # the one killed before, which its supervisor has just buried
            return ""
        try:
            if not (is_stopped(victim) and services.log_is_free()):  # the one that is stopped may hold the log's lock
                return ""
            *_, last = [entry for entry in services.entries() if entry["pid"] == victim] or [{}]
            if when not in last:
                return ""
            services.note(ended="killed", about=last["about"])
            os.kill(victim, signal.SIGKILL)
            return str(last["about"])
        finally:
            with suppress(ProcessLookupError):  # its supervisor has buried it
                os.kill(victim, signal.SIGCONT)

    return until(killed, what=lambda: pool.output)


def most_at_once() -> int:
    """Of the requests to insurers, by the order of the log's lines."""
    under_way = most = 0
    for entry in services.entries():
        under_way += ("begun" in entry) - ("ended" in entry)
        most = max(most, under_way)
    assert under_way == 0
    return most


def what_is_left(worker: Runworker) -> str:
    left = Workflow.objects.filter(status="PENDING").values_list("pk", "workflow_type", "waiting_for", "retry_count")
    return f"{len(left)} left: {list(left[:10])}\n{worker.output}"
