"""The demo's world: the website that sends submissions, the services' bad day, the other flow, and a clinician."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
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
# Every seventh submission is sent twice at once, as by a website that tries two regions.
HEDGED_EVERY = 7
# Faults for the whole demo. Best-effort steps have none, because the demo checks their effects.
TRANSIENT_FAULTS = (
    {"service": "profiles", "operation": None, "kind": "status", "status": 503, "rate": 0.05, "count": None},
    {"service": "payments", "operation": "charge", "kind": "drop_after", "rate": 0.1, "count": None},
    {"service": "programs", "operation": "enroll", "kind": "half", "rate": 0.05, "count": None},
)
OUTAGE = {"service": "visits", "operation": None, "kind": "status", "status": 503, "rate": 1.0, "count": None}
OUTAGE_BEGINS, OUTAGE_LASTS = 2.0, 6.0
# Seconds after the outage began. The submission is faster, and first looks in vain.
OTHER_FLOW_DELAY = 2.0
# The others get no signal: their submissions find the account by looking.
TOLD_EVERY = 2

Decision = Literal["approve", "reject", "leave"]


def hedged(samples: Sequence[Sample]) -> list[Sample]:
    """The samples in their order, every seventh of them twice."""
    return [sample for number, sample in enumerate(samples) for _ in range(1 + (number % HEDGED_EVERY == 0))]


def send_all(
    intake: str, api_key: str, samples: Sequence[Sample], *, connections: int = CONNECTIONS
) -> tuple[int, int]:
    """Send the samples; return how many are stored, and how many were replays. Raises DemoError if not 202."""
    headers = {"Authorization": f"Bearer {api_key}"}
    with (
        httpx.Client(base_url=intake, headers=headers, timeout=30) as client,
        ThreadPoolExecutor(connections) as pool,
    ):
        answers = list(pool.map(partial(_send, client), samples))
    ids: dict[UUID, int] = {}
    for sample, answer in zip(samples, answers, strict=True):
        if ids.setdefault(sample.idempotency_key, answer["id"]) != answer["id"]:
            raise DemoError(f"The key {sample.idempotency_key} was given two ids.")
    return len(ids), sum(answer["replayed"] for answer in answers)


def _send(client: httpx.Client, sample: Sample) -> dict[str, Any]:
    key = {"Idempotency-Key": str(sample.idempotency_key)}
    answer = client.post("/v1/submissions", json=sample.payload, headers=key)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise DemoError(f"The intake answered {answer.status_code}: {answer.text}")
    return dict(answer.json())


def arrange(sandbox: str, samples: Sequence[Sample]) -> None:
    """Make the accounts that must exist before: of returning patients, and where the address is taken."""
    with httpx.Client(base_url=sandbox, timeout=30) as client:
        for sample in samples:
            if sample.account and sample.kind is not Kind.LINKED:
                client.post("/_accounts", json=sample.account).raise_for_status()


def send_signal(door: str, secret: str, linking_id: str) -> None:
    """Send the other flow's signal, as a signed webhook (https://www.standardwebhooks.com), for a new account."""
    body = json.dumps({"name": ACCOUNT_CREATED, "linking_id": linking_id}).encode()
    delivery, now = f"msg_{uuid4()}", str(int(time()))
    signature = webhooks.sign(webhooks.key_of(secret), f"{delivery}.{now}.".encode() + body)
    headers = {"webhook-id": delivery, "webhook-timestamp": now, "webhook-signature": signature.decode()}
    answer = httpx.post(door, content=body, headers={**headers, "Content-Type": "application/json"}, timeout=30)
    if answer.status_code != httpx.codes.ACCEPTED:
        raise DemoError(f"The console answered a webhook with {answer.status_code}: {answer.text}")


@contextmanager
def bad_day(sandbox: str, samples: Sequence[Sample], *, door: str, secret: str) -> Iterator[None]:
    """Cause transient faults, the outage of one service, and linked accounts that come late.

    For these accounts the other flow sends a signal to `door`, signed with `secret`, but forgets every second one.
    """
    over = threading.Event()

    def pass_the_day() -> None:
        with httpx.Client(base_url=sandbox, timeout=30) as client:
            for fault in TRANSIENT_FAULTS:
                client.post("/_faults", json=fault).raise_for_status()
            over.wait(OUTAGE_BEGINS)
            outage = client.post("/_faults", json=OUTAGE).raise_for_status().json()
            over.wait(OTHER_FLOW_DELAY)
            other_flow(client)
            over.wait(OUTAGE_LASTS - OTHER_FLOW_DELAY)
            client.delete(f"/_faults/{outage['id']}").raise_for_status()
            over.wait()
            client.delete("/_faults").raise_for_status()

    def other_flow(client: httpx.Client) -> None:
        linked = [sample.account for sample in samples if sample.account and sample.kind is Kind.LINKED]
        for number, account in enumerate(linked):
            client.post("/_accounts", json=account).raise_for_status()
            if number % TOLD_EVERY == 0:
                send_signal(door, secret, account["linking_id"])

    with ThreadPoolExecutor(1) as pool:
        day = pool.submit(pass_the_day)
        try:
            yield
        finally:
            over.set()
    day.result()


def plan_reviews(samples: Sequence[Sample]) -> dict[UUID, Decision]:
    """The clinician's decision on each sample that needs a review: one is rejected, the last are left to you."""
    keys = [sample.idempotency_key for sample in samples if sample.needs_review]
    decisions: dict[UUID, Decision] = dict.fromkeys(keys, "approve")
    if len(keys) > 2:
        decisions[keys[1]] = "reject"
        decisions |= dict.fromkeys(keys[-max(1, len(keys) // 8) :], "leave")
    return decisions


def review(clinician: User, decisions: dict[UUID, Decision]) -> None:
    open_tasks = ManualTask.objects.filter(state=ManualTask.State.OPEN, workflow__idempotency_key__in=decisions)
    for task in open_tasks.select_related("workflow"):
        try:
            match decisions[task.workflow.idempotency_key]:
                case "approve":
                    operations.approve(task.pk, user=clinician, reason="The answers allow it.")
                case "reject":
                    operations.reject(task.pk, user=clinician, reason="Another treatment suits better.")
        except NotAllowed:
            continue  # you were faster
