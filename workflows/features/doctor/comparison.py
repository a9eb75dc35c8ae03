"""COMPARISON of the ledger's calls with the services' calls. It changes nothing on either side.

The services answer through the listings that steps declare, and through lookups (`workflows.definition.Step`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from time import monotonic
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Extract, Now
from pydantic_core import to_json

from workflows.definition import Listing, Lookup, ServiceCall, Step, WorkflowDefinition, definitions, undo_of
from workflows.effects import DONE, KEPT, UNDONE, KnownEffect, recorded_key
from workflows.errors import StepError
from workflows.models import Effect, SpentKey, Workflow
from workflows.sealing import payloads

BATCH = 500
# A service's clock may be behind the database's, so the listings start a little earlier.
CLOCKS_DIFFER = timedelta(minutes=5)

AGES = {
    "key_age": Extract(Now() - F("first_begun_at"), "epoch"),
    "call_age": Extract(Now() - F("begun_at"), "epoch"),
}
# Leaves out calls that a person accepted without knowing whether they happened.
HAPPENED = Q(state__in=(DONE, UNDONE)) | Q(state=KEPT, result__isnull=False)
# What people have done outside: no service knows our keys of it. A reversal of ours is compared all the same.
OURS = Q(by_hand="") & ~(
    Q(undo=True)
    & ~Q(settled_by__in=("call", "lookup"))
    & Exists(
        Effect.objects.filter(
            workflow=OuterRef("workflow"), step=OuterRef("step"), generation=OuterRef("generation"), undo=False
        ).exclude(by_hand="")
    )
)

Progress = Callable[[str], None]


class Kind(StrEnum):
    """How ledger and service differ, for machines."""

    NO_SUBMISSION = "no_submission"
    NOT_ON_LEDGER = "not_on_ledger"
    OTHER_STATE = "other_state"
    NOT_AT_SERVICE = "not_at_service"
    REVERSED_AT_SERVICE = "reversed_at_service"
    NOT_TOLD = "not_told"


@dataclass(frozen=True, slots=True)
class Difference:
    """A call on which ledger and service differ, or (NOT_TOLD) calls that could not be compared.

    `step` is `undo charge` for a reversal. `at`, `amount` and `reference` come from the service, `state` from the
    ledger. Unknown values are empty or None.
    """

    kind: Kind
    workflow_type: str
    step: str
    key: str = ""
    submission: str = ""
    workflow_id: int | None = None
    state: str = ""
    at: str = ""
    amount: str = ""
    reference: str = ""
    error: str = ""


def compare(since: datetime, progress: Progress) -> Iterator[Difference]:
    """Yield each difference of the calls that were started at or after `since`.

    No worker may run meanwhile: a call that it has just made would be a difference. The services' keys are stored in a
    temporary file, and all else is read in batches, so memory does not grow with the ledger.
    """
    with closing(sqlite3.connect("")) as keys:
        keys.execute("CREATE TABLE call (key TEXT PRIMARY KEY) WITHOUT ROWID")
        for definition in definitions().values():
            comparison = _Comparison(definition, since, keys, progress)
            for name, listing in definition.listings.items():
                yield from comparison.what_services_know(name, listing)
            yield from comparison.what_the_ledger_knows()


class _Comparison:
    def __init__(
        self, definition: WorkflowDefinition, since: datetime, keys: sqlite3.Connection, progress: Progress
    ) -> None:
        self.definition, self.since, self.keys, self.progress = definition, since, keys, progress
        self.listed: set[str] = set()  # the steps, and undos, that a service has listed completely

    def what_services_know(self, name: str, listing: Listing) -> Iterator[Difference]:
        undo = name.startswith(undo_of(""))
        step = self.definition.find_or_removed_step(name.removeprefix(undo_of("")))
        name, pattern, count = _name(step, undo), _keys_of(step, undo), 0
        try:
            calls = iter(listing(self.since - CLOCKS_DIFFER))
            while batch := list(islice(calls, BATCH)):
                ours = [(call, match["submission"]) for call in batch if (match := pattern.fullmatch(call.key))]
                of_step = Effect.objects.filter(step__in=step.names, undo=undo)
                yield from self._compare_with_ledger(name, of_step, [each for each in ours if self._is_new(each[0])])
                count += len(ours)
                self.progress(f"{self.definition.name}: {count:,} calls of {name} at the service")
        except Exception as error:  # the others are compared all the same
            yield Difference(Kind.NOT_TOLD, self.definition.name, name, error=_in_words(error))
        else:
            self.listed.add(name)

    def _is_new(self, call: ServiceCall) -> bool:
        """Store the key of a listed call; False if it is stored. Two definitions may list the same calls."""
        return self.keys.execute("INSERT OR IGNORE INTO call VALUES (?)", [call.key]).rowcount == 1

    def _is_listed(self, key: str) -> bool:
        return self.keys.execute("SELECT 1 FROM call WHERE key = ?", [key]).fetchone() is not None

    def _compare_with_ledger(
        self, name: str, of_step: QuerySet[Effect], calls: Sequence[tuple[ServiceCall, str]]
    ) -> Iterator[Difference]:
        submissions = {submission for _, submission in calls}
        found = Workflow.objects.filter(idempotency_key__in=submissions)
        workflows = {
            str(key): (id, type_) for key, id, type_ in found.values_list("idempotency_key", "pk", "workflow_type")
        }
        ids = [id for id, _ in workflows.values()]
        of_step = of_step.filter(workflow__in=ids)
        effects = {recorded_key(each.workflow, each): each for each in _with_keys(of_step)}
        happened = {*of_step.filter(HAPPENED, OURS).values_list("pk", flat=True)}
        spent = SpentKey.objects.filter(idempotency_key__in=submissions - workflows.keys())
        deleted = {str(key) for key in spent.values_list("idempotency_key", flat=True)}
        for call, submission in calls:
            if submission in deleted:  # its ledger is deleted, too
                continue
            id, workflow_type = workflows.get(submission, (None, self.definition.name))
            effect = effects.get(call.key)
            if effect and effect.pk in happened:
                continue
            state = effect.state if effect else ""
            kind = Kind.OTHER_STATE if state else Kind.NOT_ON_LEDGER
            yield Difference(
                Kind.NO_SUBMISSION if id is None else kind,
                *(workflow_type, name, call.key, submission, id, state),
                *(call.at, call.amount, call.reference),
            )

    def what_the_ledger_knows(self) -> Iterator[Difference]:
        happened = _with_keys(
            Effect.objects.filter(
                *(HAPPENED, OURS), workflow__workflow_type=self.definition.name, begun_at__gte=self.since
            )
        )
        last = count = 0
        while batch := list(happened.filter(pk__gt=last).order_by("pk")[:BATCH]):
            for effect in batch:
                yield from self._compare_with_service(effect)
            last, count = batch[-1].pk, count + len(batch)
            self.progress(f"{self.definition.name}: {count:,} calls of the ledger")

    def _compare_with_service(self, effect: Effect) -> Iterator[Difference]:
        step = self.definition.find_step(effect.step)
        if step is None or (not effect.undo and _called_nothing(step, effect)):
            return
        name = _name(step, effect.undo)
        lookup = step.undo_lookup if effect.undo else step.lookup
        try:
            if not self._is_listed(recorded_key(effect.workflow, effect)) and self._is_missing(
                name, step, lookup, effect
            ):
                yield self._difference(Kind.NOT_AT_SERVICE, name, effect)
            elif effect.state == DONE and not effect.undo and self._is_reversed(step, effect):
                yield self._difference(Kind.REVERSED_AT_SERVICE, name, effect)
        except Exception as error:
            yield self._difference(Kind.NOT_TOLD, name, effect, error=_in_words(error))

    def _is_missing(self, name: str, step: Step, lookup: Lookup | None, effect: Effect) -> bool:
        """Whether the service does not know the call. Its lookup decides: a person may have done the call by hand."""
        if lookup is None:
            return name in self.listed
        return step.settle > 0 and self._look_up(lookup, effect) is None

    def _is_reversed(self, step: Step, effect: Effect) -> bool:
        """Whether somebody reversed, at the service, a call that the ledger has as done. Listed undos are our own."""
        if step.undo_lookup is None or self._is_listed(f"{recorded_key(effect.workflow, effect)}:undo"):
            return False
        return self._look_up(step.undo_lookup, effect) is not None

    def _look_up(self, lookup: Lookup, effect: Effect) -> Any:
        workflow = Workflow.objects.get(pk=effect.workflow_id)
        payloads.open_for_steps(self.definition, workflow, strict=False)
        calls = Effect.objects.filter(workflow=workflow, undo=False, generation__lte=effect.generation)
        calls = calls.annotate(**AGES).order_by("generation")
        fields = self.definition.context_class.model_fields
        recorded = {name: value for each in calls for name, value in (each.result or {}).items() if name in fields}
        context = self.definition.context_class.model_validate_json(to_json(recorded))
        [of_call] = [each for each in calls if (each.step, each.generation) == (effect.step, effect.generation)]
        return lookup(workflow=workflow, context=context, effect=_known(workflow, of_call))

    def _difference(self, kind: Kind, name: str, effect: Effect, error: str = "") -> Difference:
        key = recorded_key(effect.workflow, effect)
        return Difference(
            *(kind, self.definition.name, name, key, key.partition(":")[0], effect.workflow_id, effect.state),
            error=error,
        )


def _name(step: Step, undo: bool) -> str:
    return undo_of(step.name) if undo else step.name


def _keys_of(step: Step, undo: bool) -> re.Pattern[str]:
    """The pattern of the keys of a step's calls (`effects.key_of`), with the submission's key as a group."""
    names = "|".join(map(re.escape, step.names))
    return re.compile(
        rf"(?P<submission>[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}):({names})(:\d+)?{':undo' if undo else ''}"
    )


def _called_nothing(step: Step, effect: Effect) -> bool:
    """Whether the step made no call (no card, no charge): its result lacks a field that calls return."""
    return any((effect.result or {}).get(name) is None for name in step.returns or ())


def _in_words(error: Exception) -> str:
    """The error in words. Only the messages of our own clients are free of patient data."""
    return str(error) if isinstance(error, StepError) else type(error).__name__


def _with_keys(effects: QuerySet[Effect]) -> QuerySet[Effect]:
    """With what `recorded_key` needs of their workflows."""
    return effects.select_related("workflow").defer("workflow__payload", "workflow__context")


def _known(workflow: Workflow, effect: Any) -> KnownEffect:
    return KnownEffect(
        *(effect.pk, effect.step, effect.generation, effect.state, recorded_key(workflow, effect), effect.result),
        *(float(effect.key_age), float(effect.call_age), monotonic(), effect.has_undo),
    )
