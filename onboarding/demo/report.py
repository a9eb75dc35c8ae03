"""The outcomes of the demo's submissions: a table for people, and whether each is as expected."""

from __future__ import annotations

import base64
import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import httpx
from django.db.models import Count
from rich.table import Table

from onboarding.demo.traffic import Decision
from onboarding.samples import Sample
from workflows.features.outbox.destinations import OF_NOTICES
from workflows.ingress.verifying import PREFIX
from workflows.models import Attempt, OutboxEvent, State, Workflow

# Seconds for the relay, which looks once a second, to send all events.
RELAYED_WITHIN = 20.0

Effects = Counter[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Expected:
    """How a submission should finish, and which effects the services should have performed by then."""

    state: State
    code: str
    effects: Effects


@dataclass(frozen=True, slots=True)
class Result:
    """Where a submission stands."""

    id: int
    mode: str
    state: State
    code: str
    waits: bool  # for a person, a service or a time, by its row
    attempts: int
    seconds: float | None  # from its row's creation to its rest


def expect(sample: Sample, decision: Decision | None) -> Expected:
    """The expected outcome of a sample, given the clinician's plan for it."""
    if decision in ("reject", "leave"):
        # All effects before the review, which follows the questionnaire.
        before = sample.effects[: sample.effects.index(("visits", "save_questionnaire")) + 1]
        if decision == "reject":
            return Expected(State.FAILED, "approval_rejected", Counter(before))
        return Expected(State.WAITING, "", Counter(before))
    state = State.COMPLETE if sample.status == "COMPLETE" else State.FAILED
    return Expected(state, sample.code, Counter(sample.effects))


def results(samples: Sequence[Sample]) -> dict[UUID, Result]:
    """Where each sample stands now, by key."""
    keys = [sample.idempotency_key for sample in samples]
    rows = Workflow.objects.with_state().filter(idempotency_key__in=keys).defer("context")
    attempts = dict(
        Attempt.objects.filter(workflow__in=rows.values("pk")).values_list("workflow").annotate(Count("pk"))
    )
    return {
        row.idempotency_key: Result(
            id=row.pk,
            mode=str(row.payload.get("authentication_mode", row.workflow_type)),
            state=State(row.state),
            # Whether a parked workflow met the outage itself is chance, so it has no code.
            code="" if row.state == State.PARKED else row.last_error_code,
            waits=bool(row.waiting_for),
            attempts=attempts.get(row.pk, 0),
            seconds=(row.completed_at - row.created_at).total_seconds() if row.completed_at else None,
        )
        for row in rows
    }


def is_at_rest(result: Result, expected: Expected) -> bool:
    """Whether nothing more will happen to it by itself."""
    has_ended = result.state in (State.COMPLETE, State.FAILED, State.CANCELLED)
    return has_ended or (result.state == expected.state and result.waits)


def performed(sandbox: str) -> dict[UUID, Effects]:
    """The effects that the sandbox's log has, by the submission's key."""
    effects: dict[UUID, Effects] = defaultdict(Counter)
    for effect in httpx.get(f"{sandbox}/_effects", timeout=60).json()["effects"]:
        key, _, _ = effect["idempotency_key"].partition(":")
        effects[UUID(key)][effect["service"], effect["operation"]] += 1
    return effects


def destinations(sandbox: str) -> str:
    """OUTBOX_DESTINATIONS of the demo: the sandbox is a CRM; mail about what waits is printed in the relay's log."""
    secret = PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    desk = {"email": "onramp@example.com", "topics": OF_NOTICES}
    crm = {"url": f"{sandbox}/_events", "secrets": [secret], "topics": ["workflow.*"]}
    return json.dumps({"crm": crm, "desk": desk})


def told(sandbox: str) -> list[dict[str, Any]]:
    """The events that the sandbox received, once none is waiting or after a time limit."""
    patience = monotonic() + RELAYED_WITHIN
    while OutboxEvent.objects.filter(state="", destination="crm").exists() and monotonic() < patience:
        sleep(0.2)
    events: list[dict[str, Any]] = httpx.get(f"{sandbox}/_events", timeout=60).json()["events"]
    return events


def faults(
    expected: Mapping[UUID, Expected], found: Mapping[UUID, Result], effects: Mapping[UUID, Effects]
) -> list[str]:
    """A sentence for each submission that is not as expected; empty if all are."""
    sentences = []
    for key, wanted in expected.items():
        result = found.get(key)
        if result is None:
            sentences.append(f"{key} was accepted, and is not there.")
            continue
        if (result.state, result.code) != (wanted.state, wanted.code):
            is_now = f"{result.state} {result.code}".strip()
            sentences.append(
                f"Workflow {result.id} is {is_now}; it should be {wanted.state} {wanted.code}".strip() + "."
            )
        done = effects.get(key, Counter())
        for missing in wanted.effects - done:
            sentences.append(f"Workflow {result.id} has not performed {'/'.join(missing)}.")
        for surplus, times in (done - wanted.effects).items():
            sentences.append(f"Workflow {result.id} has performed {'/'.join(surplus)} {times} times too often.")
    return sentences


def table(found: Mapping[UUID, Result]) -> Table:
    """By type and state: how many, how many attempts, and how long from the request to the end."""
    groups: dict[tuple[str, State], list[Result]] = defaultdict(list)
    for result in found.values():
        groups[result.mode, result.state].append(result)
    view = Table(title="What became of them", title_justify="left")
    view.add_column("Type")
    view.add_column("State")
    for heading in ("Count", "Attempts, mean", "Attempts, most", "p50", "p95"):
        view.add_column(heading, justify="right")
    for (mode, state), group in sorted(groups.items()):
        attempts = [result.attempts for result in group]
        seconds = sorted(result.seconds for result in group if result.seconds is not None)
        view.add_row(
            mode,
            state,
            str(len(group)),
            f"{sum(attempts) / len(attempts):.1f}",
            str(max(attempts)),
            *(f"{_percentile(seconds, share):.1f} s" if seconds else "" for share in (0.5, 0.95)),
        )
    return view


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of a sorted, non-empty sequence."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
