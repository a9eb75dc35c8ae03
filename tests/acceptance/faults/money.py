"""Workflows that pay, and what goes wrong with each of them: a plan, which leaves to chance the order alone."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.db.models import F
from django.db.models.functions import Now

from onboarding.services import http
from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.faults import definitions
from tests.acceptance.faults.audit import BY_HAND, OPEN, Audit
from tests.acceptance.faults.harness import System
from tests.processes import Runworker
from tests.sandbox_process import SandboxProcess
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.brake import operations as brake
from workflows.features.outages import operations as services
from workflows.models import Attempt, Effect, ManualTask, Service, Workflow
from workflows.models.service import FIRST_COOL_OFF

NAMES = ("BY_KEY", "BY_LOOKUP", "BY_PERSON", "FINAL_BY_KEY", "FINAL_BY_LOOKUP", "FINAL_BY_PERSON")
OTHERS = ("STEP_BY_STEP", "IN_TURNS")
DEFINITIONS = {name.lower(): getattr(definitions, name) for name in (*NAMES, *OTHERS)}

# What a request can meet, each in several ways. All are requests of a client that waits a second for its answer.
MEETS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "lost": [("drop_after", {}), ("timeout_after", {}), ("half", {})],
    "late": [("slow", {"delay_s": 1.2})],
    "unclear": [("status", {"status": 500})],  # and nothing was performed
    "unavailable": [("status", {"status": 503}), ("status", {"status": 429})],
    "refused": [("status", {"status": 401}), ("status", {"status": 403})],
}
# The requests for a charge, one after the other; those that come after them meet nothing.
CALLS: Sequence[tuple[str, ...]] = (
    (),
    ("lost",),
    ("lost", "refused"),
    ("lost", "unavailable"),
    ("lost", "unavailable", "unavailable", "unavailable"),  # until long after the key is forgotten
    ("late", "refused"),
    ("late", "unavailable", "refused"),
    ("unclear", "refused"),
    ("unavailable", "lost", "unavailable"),
    ("refused",),
)
REFUNDS: Sequence[tuple[str, ...]] = (
    (),
    ("lost",),
    ("unavailable",),
    ("refused", "refused", "refused"),  # a person is asked
    ("lost", "refused", "refused"),  # and finds it done
)
CONFIRMATIONS: Sequence[tuple[str, ...]] = ((), (), ("lost",), ("lost", "unavailable", "refused"))
ENDS: Sequence[dict[str, Any]] = (
    {},
    {"fails_at": "close_the_books"},
    {"patience": 2},
    {"fails_at": "ship"},
    {"cancel": "in doubt"},
    {"fails_at": "collect"},
    {"patience": 3},
    {"cancel": "at random"},
    {"waived_from": 2},
)


@dataclass(frozen=True)
class Plan:
    """One workflow: its definition's name, what its requests meet by operation, and how it is to end."""

    workflow_type: str
    meets: dict[str, tuple[str, ...]]
    end: dict[str, Any]


# What is to be met in every run, whatever the others come to; where a death can spoil it, more than once.
CERTAIN = [
    *[Plan(name, {"refund": ("refused",) * 3}, {"fails_at": "ship"}) for name in ("by_key", "by_lookup", "by_person")],
    Plan("by_key", {"refund": ("lost", "refused", "refused")}, {"fails_at": "close_the_books"}),
    Plan("final_by_key", {"charge": ("lost", *["unavailable"] * 3)}, {}),
    *[Plan(name, {"charge": ("lost", *["unavailable"] * 3)}, {"patience": 2}) for name in ("by_key", "final_by_key")],
    *[Plan(name, {"charge": ("lost", "refused")}, {}) for name in ("by_key", "final_by_key")],
    Plan("by_key", {"charge": ("lost", *["unavailable"] * 3)}, {"cancel": "in doubt"}),
    *[Plan(name, {}, {"fails_at": "collect"}) for name in ("by_key", "by_lookup", "by_person")],
]
# So many of the first plans are each definition with each of CALLS, and those that are CERTAIN.
ALL = len(NAMES) * len(CALLS) + len(CERTAIN)


def plans(seed: int) -> Iterator[Plan]:
    """Plans without end, in an order of the seed's: those that are CERTAIN, then the others, and so on."""
    randomly = random.Random(seed)
    refunds, confirmations, ends = cycle(REFUNDS), cycle(CONFIRMATIONS), cycle(ENDS)
    while True:
        yield from randomly.sample(CERTAIN, len(CERTAIN))
        both = [(name.lower(), calls) for name in NAMES for calls in CALLS]
        for name, calls in randomly.sample(both, len(both)):
            meets = {"charge": calls, "refund": next(refunds), "send_confirmation": next(confirmations)}
            yield Plan(name, meets, next(ends))


class Till(System):
    """A system of workflows that pay, at services that forget their keys. Every look at rest is an audit."""

    def __init__(self, state: Path, start: Start, seed: int) -> None:
        super().__init__(SandboxProcess(state, key_ttl=definitions.FORGOTTEN_AFTER), start, seed)
        self.plans = plans(seed)
        self.audit = Audit(self.sandbox, DEFINITIONS)
        self.plan_of: dict[int, Plan] = {}
        self.cancel_at: dict[int, float] = {}
        self._dealings = cycle(["tried again", "undone by hand", "left as it is"])

    # --- What happens -------------------------------------------------------------------------------

    def work(self, *names: str, processes: int = 1, arguments: tuple[str, ...] = (), **environ: str) -> Runworker:
        given = {"SERVICES_TIMEOUT": "1", **environ}
        queue = ("--queue", definitions.MONEY, *arguments)
        return super().work(*(names or NAMES), processes=processes, arguments=queue, **given)

    def drain(self) -> None:
        """Let a worker of this process run each workflow that is not waiting; what is rescheduled by that is left."""
        self.hurry()
        http.close()  # as a new process: what was kept may be a connection to services that are gone
        worker = engine.worker(queue=definitions.MONEY)
        while worker.process_next():
            pass

    def pay(
        self, workflow_type: str, *, calls: Sequence[str] = (), refunds: Sequence[str] = (), **end: Any
    ) -> Workflow:
        return self.enter_plan(Plan(workflow_type, {"charge": tuple(calls), "refund": tuple(refunds)}, end))

    def enter_plan(self, plan: Plan) -> Workflow:
        """Enter a workflow, and have its requests meet what the plan says, and nobody else's."""
        key, patient = uuid4(), self.patient(plan.workflow_type)
        for operation, script in plan.meets.items():
            service = "messages" if operation == "send_confirmation" else "payments"
            for word in script:
                kind, how = self.random.choice(MEETS[word])
                self.sandbox.fault(service, operation, kind, idempotency_key=f"{key}:", count=1, **how)
        attached = self._post("/payments/cards", {"patient_uuid": patient, "card_token": "tok"}, f"arranged:{key}")
        payload = {"patient": patient, "card": attached["card_id"], "patience": definitions.UNLIMITED, **plan.end}
        queue = DEFINITIONS[plan.workflow_type].queue
        workflow = engine.submit(payload, workflow_type=plan.workflow_type, idempotency_key=key, queue=queue)
        self.given[workflow.pk] = None
        self.plan_of[workflow.pk] = plan
        if plan.end.get("cancel") == "at random":
            self.cancel_at[workflow.pk] = time.monotonic() + self.random.uniform(0, 6)
        return workflow

    def forget_the_keys(self) -> None:
        """A day has passed, for the ledger as for the services."""
        Effect.objects.filter(workflow__in=self.given).update(first_begun_at=F("first_begun_at") - definitions.KEY_TTL)
        self.sandbox.kill()
        self.sandbox.key_ttl = 0.001
        self.sandbox.start()

    def cancel_as_planned(self) -> None:
        """Those whose time has come; and those that are to be cancelled while their charge is in doubt, then."""
        for pk, at in list(self.cancel_at.items()):
            if time.monotonic() >= at:
                del self.cancel_at[pk]
                self.cancel(pk)
        planned = [pk for pk, plan in self.plan_of.items() if plan.end.get("cancel") == "in doubt"]
        in_doubt = Effect.objects.filter(workflow__in=planned, step="collect", undo=False, state__in=OPEN)
        for pk in in_doubt.filter(workflow__status="PENDING").values_list("workflow", flat=True):
            self.cancel(pk)

    def try_what_cools_off(self) -> None:
        """A person tries what would be down for minutes: trial after trial may meet a planned fault."""
        down = Service.objects.filter(opened_at__isnull=False, cool_off__gt=FIRST_COOL_OFF, retry_at__gt=Now())
        for name in down.values_list("name", flat=True):
            with suppress(NotAllowed):  # a trial has closed it just now
                services.try_now(name, user=self.person, reason="They say it is up.")

    def let_fail_what_is_to_fail(self) -> None:
        """A person lets the brake's workflows fail once all that it holds are to fail there: no trial of one passes."""
        for cause in Service.objects.filter(opened_at__isnull=False, let_fail_until=None).exclude(step=""):
            held = brake.parked_to_fail(cause.name).values_list("pk", flat=True)
            if held and all(self.plan_of[pk].end.get("fails_at") == cause.step for pk in held):
                with suppress(NotAllowed):  # let go just now, or none of them is parked at this moment
                    brake.let_fail(cause.name, user=self.person, reason="These are meant to fail.")
                    self.met["let fail"] += 1

    def retry_the_failed(self) -> None:
        for pk in Workflow.objects.filter(pk__in=self.given, status="FAILED").values_list("pk", flat=True):
            operations.retry(pk, user=self.person, reason="All is well again.")
            self.met["retried"] += 1

    # --- People -------------------------------------------------------------------------------------

    def deal_with_undo(self, task: ManualTask) -> None:
        """As the log says. A charge that stands is dealt with in three ways, in turn."""
        facts = dict(task.facts)
        key, undo_key = facts["Idempotency key of the call"], facts["Idempotency key of its reversal"]
        did = {line["operation"] for line in self.sandbox.effects() if key in line["idempotency_key"]}
        if "charge" not in did or "refund" in did:
            self.met["found undone"] += 1
            self._is_undone(task, (self.sandbox.answer_to("payments", undo_key) or {}).get("refund_id", "none-was-due"))
            return
        dealing = next(self._dealings)
        self.met[dealing] += 1
        if dealing == "tried again":
            operations.reject(task.pk, user=self.person, reason="It is up again.")
        elif dealing == "left as it is":
            operations.approve(task.pk, user=self.person, reason="It stays.", answer={"kept": True})
        else:
            refunded = self._post("/payments/refunds", self.performed_under(key) or {}, f"{BY_HAND}{undo_key}")
            self._is_undone(task, refunded["refund_id"])

    def _is_undone(self, task: ManualTask, reference: str) -> None:
        answer = {"kept": False, "reference": reference}
        operations.approve(task.pk, user=self.person, reason="Seen in the log.", answer=answer)

    def _post(self, path: str, body: dict[str, str], key: str) -> dict[str, str]:
        answer = self.sandbox.http.post(path, json=body, headers={"Idempotency-Key": key}).raise_for_status()
        return dict(answer.json())

    # --- What was met -------------------------------------------------------------------------------

    def assert_the_books_are_right(self) -> None:
        """Of all that nobody holds: now, and whenever it was looked at before."""
        self.audit.look(self.given)
        self.audit.assert_nothing_wrong(self.seed)

    def what_was_met(self) -> Counter[str]:
        """How often each thing that these workflows are there for has happened so far."""
        rows = Workflow.objects.filter(pk__in=self.given)
        asked = ManualTask.objects.filter(workflow__in=self.given, task_type="effect_in_doubt")
        effects = Effect.objects.filter(workflow__in=self.given, undo=False)
        met = Counter(self.met)
        met["complete"] = rows.filter(status="COMPLETE").count()
        met["failed and undone"] = effects.filter(workflow__status="FAILED", state="undone").count()
        met["cancelled"] = rows.filter(cancelled_at__isnull=False).count()
        met["asked when the key was over"] = asked.filter(workflow__workflow_type__endswith="by_key").count()
        met["looked up"] = effects.filter(settled_by="lookup").count()
        for row in rows.filter(status="FAILED"):
            met.update(self._how_it_failed(row))
        return met

    def _how_it_failed(self, row: Workflow) -> set[str]:
        """Of one that has failed for good, also: whether its charge was in doubt before, and what ended it."""
        steps = [each for attempt in Attempt.objects.filter(workflow=row).order_by("number") for each in attempt.steps]
        own = [each for each in steps if each["step"] == "collect" and not each.get("undo")]
        doubts = [each for each in own if each.get("error_class", "").endswith("UnknownOutcome")]
        if row.cancelled_at:
            return {"cancelled in doubt"} if doubts and own[-1]["outcome"] == "failed" else set()
        if row.current_step != "collect":
            return {f"failed at {row.current_step}"}
        if not row.last_error_class.endswith(("StepError", "UnknownOutcome")):
            return {"failed after the call"}
        in_doubt = " in doubt" if doubts else ""
        exhausted = row.retry_count >= self.plan_of[row.pk].end.get("patience", definitions.UNLIMITED)
        return {f"{'gave up' if exhausted else 'refused'}{in_doubt}"}
