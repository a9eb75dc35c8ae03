"""The demo's world: the website that sends submissions, the services' bad day, the other flow, and a clinician."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import time
from typing import Any, Literal
from uuid import UUID, uuid4

import httpx
from django.contrib.auth.models import User

from onboarding.demo.processes import DemoError
from onboarding.samples import Kind, Sample
from onboarding.steps.account import ACCOUNT_CREATED
from workflows import operations
from workflows.errors import NotAllowed
from workflows.ingress import webhooks
from workflows.models import ManualTask

CONNECTIONS = 16
# Every seventh submission is sent twice at the same moment, as by a website that tries two regions at once.
HEDGED_EVERY = 7
# Faults that last as long as the demo. Those of best-effort steps are left alone: they would be missing, rightly, from
# the effects that the demo checks.
TRANSIENT_FAULTS = (
    {"service": "profiles", "operation": None, "kind": "status", "status": 503, "rate": 0.05, "count": None},
    {"service": "payments", "operation": "charge", "kind": "drop_after", "rate": 0.1, "count": None},
    {"service": "programs", "operation": "enroll", "kind": "half", "rate": 0.05, "count": None},
)
OUTAGE = {"service": "visits", "operation": None, "kind": "status", "status": 503, "rate": 1.0, "count": None}
OUTAGE_BEGINS, OUTAGE_LASTS = 2.0, 6.0
# The other flow is slower than the submission: some linked accounts are looked for in vain first.
OTHER_FLOW_DELAY = 4.0
# No signal is sent for the others: their submissions find them by looking.
TOLD_EVERY = 2

Decision = Literal["approve", "reject", "leave"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What the intake answered: the workflow's id for each key, and how many answers were replays."""

    ids: dict[UUID, int]
    replayed: int


def send_all(intake: str, api_key: str, samples: Sequence[Sample]) -> Sent:
    """Send every sample, from 16 connections, some of them twice at once. Raises DemoError on any answer but 202."""
    limits = httpx.Limits(max_connections=CONNECTIONS)
    headers = {"Authorization": f"Bearer {api_key}"}
    with httpx.Client(base_url=intake, headers=headers, limits=limits, timeout=30) as client:

        def send(sample: Sample, together: threading.Barrier | None) -> dict[str, Any]:
            if together:
                together.wait(timeout=30)
            return _send(client, sample)

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            waiting = []
            for number, sample in enumerate(samples):
                hedged = number % HEDGED_EVERY == 0
                together = threading.Barrier(2) if hedged else None
                waiting += [pool.submit(send, sample, together) for _ in range(2 if hedged else 1)]
            answers = [future.result() for future in waiting]
    ids: dict[UUID, int] = {}
    for answer in answers:
        if ids.setdefault(answer["key"], answer["id"]) != answer["id"]:
            raise DemoError(f"The key {answer['key']} was given two ids.")
    return Sent(ids, sum(answer["replayed"] for answer in answers))


def send_in_order(intake: str, api_key: str, samples: Sequence[Sample]) -> None:
    """Send each sample once, one after the other. Raises DemoError on any answer but 202."""
    with httpx.Client(base_url=intake, headers={"Authorization": f"Bearer {api_key}"}, timeout=30) as client:
        for sample in samples:
            _send(client, sample)


def _send(client: httpx.Client, sample: Sample) -> dict[str, Any]:
    key = {"Idempotency-Key": str(sample.idempotency_key)}
    answer = client.post("/v1/submissions", json=sample.payload, headers=key)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise DemoError(f"The intake answered {answer.status_code}: {answer.text}")
    return {"key": sample.idempotency_key, **answer.json()}


def arrange(sandbox: str, samples: Sequence[Sample]) -> None:
    """Make the accounts that existed before: of returning patients, and of those whose e-mail address is taken."""
    with httpx.Client(base_url=sandbox, timeout=30) as client:
        for sample in samples:
            if sample.account and sample.kind is not Kind.LINKED:
                client.post("/_accounts", json=sample.account).raise_for_status()


def send_signal(door: str, secret: str, linking_id: str) -> None:
    """What the other flow does when it has created an account: a signed webhook (https://www.standardwebhooks.com)."""
    body = json.dumps({"name": ACCOUNT_CREATED, "linking_id": linking_id}).encode()
    delivery, now = f"msg_{uuid4()}", str(int(time()))
    signature = webhooks.sign(webhooks.key_of(secret), f"{delivery}.{now}.".encode() + body)
    headers = {"webhook-id": delivery, "webhook-timestamp": now, "webhook-signature": signature.decode()}
    answer = httpx.post(door, content=body, headers={**headers, "Content-Type": "application/json"}, timeout=30)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise DemoError(f"The console answered a webhook with {answer.status_code}: {answer.text}")


@contextmanager
def bad_day(sandbox: str, samples: Sequence[Sample], *, door: str, secret: str) -> Iterator[None]:
    """Transient faults throughout, one service down for a while, and linked accounts that come late.

    For these the other flow sends a signal to `door`, signed with `secret`; every second time it forgets to.
    """
    over = threading.Event()

    def set_faults(client: httpx.Client, *faults: dict[str, Any]) -> None:
        client.delete("/_faults").raise_for_status()
        for fault in faults:
            client.post("/_faults", json=fault).raise_for_status()

    def outage() -> None:
        with httpx.Client(base_url=sandbox, timeout=30) as client:
            set_faults(client, *TRANSIENT_FAULTS)
            if not over.wait(OUTAGE_BEGINS):
                set_faults(client, *TRANSIENT_FAULTS, OUTAGE)
                over.wait(OUTAGE_LASTS)
            set_faults(client, *TRANSIENT_FAULTS)
            over.wait()
            set_faults(client)

    def other_flow() -> None:
        over.wait(OTHER_FLOW_DELAY)
        with httpx.Client(base_url=sandbox, timeout=30) as client:
            linked = [sample.account for sample in samples if sample.account and sample.kind is Kind.LINKED]
            for number, account in enumerate(linked):
                client.post("/_accounts", json=account).raise_for_status()
                if number % TOLD_EVERY == 0:
                    send_signal(door, secret, account["linking_id"])

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(outage), pool.submit(other_flow)]
        try:
            yield
        finally:
            over.set()
    for future in running:
        future.result()


def plan_reviews(samples: Sequence[Sample]) -> dict[UUID, Decision]:
    """What the clinician will do about each sample that needs a review: one rejected, the last ones left for you."""
    keys = [sample.idempotency_key for sample in samples if sample.needs_review]
    decisions: dict[UUID, Decision] = dict.fromkeys(keys, "approve")
    if len(keys) > 2:
        decisions[keys[1]] = "reject"
        decisions |= dict.fromkeys(keys[-max(1, len(keys) // 8) :], "leave")
    return decisions


def review(clinician: User, decisions: dict[UUID, Decision]) -> None:
    """Decide the open tasks that the clinician means to decide."""
    open_tasks = ManualTask.objects.filter(state=ManualTask.State.OPEN, workflow__idempotency_key__in=decisions)
    for task in open_tasks.select_related("workflow"):
        try:
            match decisions[task.workflow.idempotency_key]:
                case "approve":
                    operations.approve(task.pk, user=clinician, reason="The answers allow it.")
                case "reject":
                    operations.reject(task.pk, user=clinician, reason="Another treatment suits better.")
        except NotAllowed:
            continue  # you were quicker
