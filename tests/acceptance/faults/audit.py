"""AUDIT: what the services have performed, and not undone, is what the ledger says; at every rest, not only at the end.

Of a workflow that no worker holds:

| the ledger says | the services' log holds under its key |
|---|---|
| DONE, KEPT | it, once; and nothing that undoes it, unless its undo is openly in doubt |
| UNDONE | it, and what undoes it; or neither |
| NOT_DONE, SKIPPED, no line at all | nothing |
| INTENT, UNKNOWN | anything, at the most once: the ledger says openly that nobody knows |

An undo has a key and a line of its own, and the same holds for it. A workflow that has come to its end is in no doubt
about what should have been undone, nor, if it is COMPLETE, about anything that it could not do without.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from tests.sandbox_process import SandboxProcess
from workflows.definition import WorkflowDefinition
from workflows.models import Effect, Workflow

OPEN = ("intent", "unknown")
STANDS = ("done", "kept")
# What the key of a change starts with that a person has made, on the service's own pages.
BY_HAND = "by-hand:"

A_FEW = 8

Log = list[dict[str, str]]


@dataclass
class Audit:
    """Holds the ledger against the log of `sandbox`. `seen` counts the looks; `wrong` is what was found, each once."""

    sandbox: SandboxProcess
    definitions: dict[str, WorkflowDefinition]
    seen: Counter[str] = field(default_factory=Counter)  # by status
    wrong: dict[str, str] = field(default_factory=dict)  # with its details, in the order in which it was found
    at_rest: set[int] = field(default_factory=set)

    def look(self, workflows: Iterable[int]) -> None:
        """Look at those of these that nobody holds, with their rows locked: nobody starts a call meanwhile."""
        with transaction.atomic():
            free = Workflow.objects.filter(pk__in=workflows).select_for_update(skip_locked=True, no_key=True)
            rows = {row.pk: row for row in free}
            # The ledger first: what it says is done has been performed by then. What is on its way may be so since.
            effects = list(Effect.objects.filter(workflow__in=rows))
            log = self.sandbox.effects()
            for pk, row in rows.items():
                self.seen[row.status] += 1
                known = [effect for effect in effects if effect.workflow_id == pk]
                if wrong := what_is_wrong(row, known, log, self.definitions[row.workflow_type]):
                    told = "; ".join(f"{row.workflow_type} {pk}, {row.status}: {sentence}" for sentence in wrong)
                    self.wrong.setdefault(told, "\n".join(_details(known, of(row, log))))

    def look_around(self, workflows: Iterable[int], randomly: random.Random) -> None:
        """`look` at those that came to rest since the last time, and at a few others: workers find most rows free."""
        rows = Workflow.objects.filter(pk__in=workflows).values_list("pk", "status")
        at_rest = {pk for pk, status in rows if status != Workflow.Status.PENDING}
        under_way = [pk for pk, status in rows if pk not in at_rest]
        came_to_rest, self.at_rest = at_rest - self.at_rest, at_rest
        self.look([*came_to_rest, *randomly.sample(under_way, min(A_FEW, len(under_way)))])

    def assert_nothing_wrong(self, seed: int) -> None:
        """At no look so far."""
        if self.wrong:
            found = [f"{sentences}\n{details}" for sentences, details in self.wrong.items()]
            told = f"seed {seed}: {len(self.wrong)} wrong, at {self.seen.total()} looks: {dict(self.seen)}"
            raise AssertionError("\n".join([told, *found]))


def _details(effects: list[Effect], own: Log) -> Iterator[str]:
    """The lines of the ledger, and of the log, for whoever wants to know how it came to this."""
    for effect in effects:
        settled = f"settled {effect.settled_at:%T.%f} by {effect.settled_by}" if effect.settled_at else "not settled"
        why = f" ({effect.error_class} {effect.error_code})" if effect.error_class else ""
        key = effect.idempotency_key.partition(":")[2]
        yield f"    ledger  {key}: {effect.state.upper()}, begun {effect.begun_at:%T.%f}, {settled}{why}"
    for line in own:
        yield f"    log     {line['at'][11:-1]} {line['operation']} {line['idempotency_key']}"


def what_is_wrong(workflow: Workflow, effects: list[Effect], log: Log, definition: WorkflowDefinition) -> list[str]:
    """Of one workflow that nobody holds, in sentences; `effects` were read before `log`."""
    own = of(workflow, log)
    wrong = [*_of_the_ledger(effects, own), *_of_keys_unknown(effects, own, definition), *_of_money(own)]
    if workflow.status != "PENDING":
        wrong += _of_open_questions(workflow, effects, definition)
        wrong += _of_the_balance(workflow, effects, own, definition)
    return wrong


def of(workflow: Workflow, log: Log) -> Log:
    """What was performed for it; by people, too."""
    return [line for line in log if line["idempotency_key"].removeprefix(BY_HAND).startswith(f"{workflow.key}:")]


def _of_the_ledger(effects: list[Effect], own: Log) -> list[str]:
    wrong = []
    for effect in effects:
        times = [line["at"] for line in own if line["idempotency_key"] == effect.idempotency_key]
        told = f"the ledger says {effect.state.upper()} of {effect.idempotency_key}"
        if len(times) > 1:
            wrong.append(f"{told}, and it was performed {len(times)} times, at {' and '.join(times)}")
        if effect.state in ("not_done", "skipped") and [at for at in times if not _came_late(effect, at)]:
            wrong.append(f"{told}, and it was performed, at {times[0]}")
        if effect.state in STANDS and not times and not _called_nothing(effect):
            wrong.append(f"{told}, and it was never performed")
        if not effect.undo:
            wrong += [f"{told}, and {why}" for why in _of_its_undo(effect, effects, own, performed=bool(times))]
    return wrong


def _came_late(effect: Effect, performed_at: str) -> bool:
    """Whether it was performed after somebody had looked, and not found it: the ledger was right when that was written.

    A call's own failure is no such look.
    """
    looked = effect.settled_at is not None and effect.settled_by not in ("", "call")
    return looked and datetime.fromisoformat(performed_at) > effect.settled_at


def _called_nothing(effect: Effect) -> bool:
    """A checkout without a card charges nothing, the payment is due; what has nothing to give back gives nothing.

    Nor is an account changed by being looked up.
    """
    result = effect.result or {}
    if effect.undo:  # a person may have given it back, by hand
        return "refund_id" not in result or result["refund_id"] is None
    return effect.step == "look_up_account" or result.get("payment_status") == "payment_due"


def _of_its_undo(effect: Effect, effects: list[Effect], own: Log, *, performed: bool) -> list[str]:
    undo_key = f"{effect.idempotency_key}:undo"
    by_hand = [line for line in own if line["idempotency_key"] == BY_HAND + undo_key]
    undone = [line for line in own if line["idempotency_key"] == undo_key]
    if effect.state == "undone" and performed and not (undone or by_hand):
        return ["nothing has undone it"]
    # What was given back by hand the ledger learns with the person's answer, a moment later.
    in_doubt = [e for e in effects if e.idempotency_key == undo_key and e.state in OPEN]
    if effect.state in STANDS and undone and not in_doubt:
        return [f"it was undone, at {undone[0]['at']}"]
    return []


def _of_keys_unknown(effects: list[Effect], own: Log, definition: WorkflowDefinition) -> list[str]:
    once = {step.identity for step in definition.steps if step.once}
    known = {effect.idempotency_key for effect in effects}
    performed = {line["idempotency_key"] for line in own if line["idempotency_key"].split(":")[1] in once}
    return [f"the ledger knows nothing of {key}, and it was performed" for key in performed - known]


# --- Money, in words -----------------------------------------------------------------------------------


def paid(own: Log) -> int:
    """Charges that were made, less those that were given back."""
    did = Counter(line["operation"] for line in own)
    return did["charge"] - did["refund"]


def _of_money(own: Log) -> list[str]:
    balance = paid(own)
    return [f"the patient has paid {balance} times"] if balance not in (0, 1) else []


def _of_the_balance(workflow: Workflow, effects: list[Effect], own: Log, definition: WorkflowDefinition) -> list[str]:
    """One that is COMPLETE was paid for, unless it says that there was nothing to pay; one that was undone was not."""
    charges = [e for e in effects if e.step in CHARGES and not e.undo]
    if not charges:
        return [f"it has charged nobody, and {paid(own)} was paid"] if paid(own) else []
    last = max(charges, key=lambda effect: effect.generation)
    expected = {1} if last.state in STANDS and not _called_nothing(last) else {0}
    if last.state in OPEN:
        expected = {0, 1}
    if workflow.status == "FAILED" and definition.find_or_removed_step(last.step).undo and last.state != "kept":
        expected = {0}
    if paid(own) in expected:
        return []
    return [f"it is {workflow.status}, its charge is {last.state.upper()}, and {paid(own)} was paid"]


CHARGES = ("collect", "charge", "execute_checkout")


def _of_open_questions(workflow: Workflow, effects: list[Effect], definition: WorkflowDefinition) -> list[str]:
    """At its end nobody will look, or be asked, any more, until somebody has it retried."""
    wrong = []
    for effect in effects:
        step = definition.find_or_removed_step(effect.step)
        if effect.undo or effect.state not in OPEN or step.best_effort:
            continue
        if workflow.status == "COMPLETE" or effect.has_undo or step.undo:
            wrong.append(f"it is {workflow.status}, and whether {effect.step} happened nobody was asked")
    if workflow.status == "COMPLETE":
        latest = {e.step: e for e in sorted(effects, key=lambda e: e.generation) if not e.undo}
        undone = [e for e in latest.values() if e.state not in (*STANDS, *OPEN, "skipped")]
        wrong += [
            f"it is COMPLETE, and {e.step} is {e.state.upper()}"
            for e in undone
            if not definition.find_or_removed_step(e.step).best_effort
        ]
    if workflow.status == "FAILED":
        undoable = [e for e in effects if not e.undo and definition.find_or_removed_step(e.step).undo]
        wrong += [f"it is FAILED, and {e.step} was not undone" for e in undoable if e.state == "done"]
    return wrong
