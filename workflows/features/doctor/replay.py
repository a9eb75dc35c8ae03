"""REPLAY: run a stored workflow against a list of steps without calls or changes, and report the differences.

1. The row is locked, as a worker locks it. Everything runs in one transaction that cannot COMMIT.
2. The ledger answers the calls that it has. Every other call is refused (`outages.outside`).
3. If a step's call was refused, the recorded context answers for it, provided that the history says that it ran.
   Otherwise the replay ends there, because the answer is unknown. Waits get the answers that have come.

Secrets stay sealed: a step sees them as if they were emptied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.models import Max

from workflows import effects
from workflows.definition import Step, WorkflowDefinition, value_at
from workflows.effects import IN_DOUBT, NOT_DONE, UNDONE, is_unclear
from workflows.engine.results import Results, describe
from workflows.engine.runner import call_in_time
from workflows.errors import ClaimLost, NotAllowed, StepError, Suspend
from workflows.features.outages import outside
from workflows.models import Attempt, Effect, StepOutcome, Wait, Workflow
from workflows.operations.guards import lock_workflow
from workflows.postgres import django_connection
from workflows.postgres.jsonb import as_json
from workflows.sealing import payloads
from workflows.state import attempt_log
from workflows.state.attempt_log import OpenAttempt
from workflows.timeouts import StepTimeout

RAN, RECORDED, SKIPPED = StepOutcome.RAN, StepOutcome.RECORDED, StepOutcome.SKIPPED
FAILED, PASSED_OVER, WAITING = StepOutcome.FAILED, StepOutcome.BEST_EFFORT_FAILED, StepOutcome.WAITING
# Further results of a step: its call would be made, is in doubt, or the step has left the list.
WOULD_CALL, UNCLEAR, GONE = "would call", "unclear", "gone"

# A deferred constraint that fails at COMMIT, so that nothing of a replay is stored, whatever a step does.
_NEVER_COMMITS = """
    CREATE TEMPORARY TABLE replay_is_not_kept (
        id int PRIMARY KEY, missing int REFERENCES replay_is_not_kept DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP;
    INSERT INTO replay_is_not_kept VALUES (1, 2)"""


@dataclass(slots=True)
class Line:
    """What a step would do, and what it did by the history. `why` explains it; `differs` says how the two differ."""

    step: str
    does: str
    history: str = ""
    differs: str = ""
    why: str = ""


@dataclass(slots=True)
class Replay:
    """The result of a replay. `changed` has for each differing field its recorded and its new value."""

    workflow: int
    lines: list[Line] = field(default_factory=list)
    ends: str = ""
    history_ends: str = ""
    notes: list[str] = field(default_factory=list)
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        return self.ends != self.history_ends or any(line.differs for line in self.lines)

    def told(self) -> dict[str, Any]:
        steps = [{name: value for name, value in asdict(line).items() if value} for line in self.lines]
        ends = {"ends": self.ends, "history_ends": self.history_ends, "differs": self.differs}
        return {"workflow": self.workflow, "notes": self.notes, "steps": steps, **ends}


def replay(workflow_id: int, definition: WorkflowDefinition) -> Replay:
    """Replay a stored workflow. Raises NotAllowed if it is missing, locked by a worker, or of another type."""
    with outside.refused(), _kept_by_nobody():
        row, _ = lock_workflow(workflow_id)
        if row.workflow_type != definition.name:
            raise NotAllowed(f"This workflow is a {row.workflow_type}, and the list is of {definition.name}.")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id()::text")
            (xid,) = cursor.fetchone()
        attempt = OpenAttempt(0, 0, row.pk, xid)
        with attempt_log.bound_to(attempt):
            return _Pass(row, definition, attempt).run()


@contextmanager
def _kept_by_nobody() -> Iterator[None]:
    """One transaction that the attempt log shares, and that is rolled back."""
    ours = connections[DEFAULT_DB_ALIAS]
    attempt_logs = connections[attempt_log.ALIAS]
    with transaction.atomic():
        try:
            with connection.cursor() as cursor:
                cursor.execute(_NEVER_COMMITS)
            django_connection.replace(attempt_log.ALIAS, ours)
            yield
        finally:
            django_connection.replace(attempt_log.ALIAS, attempt_logs)
            transaction.set_rollback(True)


class _Pass:
    """One run through the list."""

    def __init__(self, row: Workflow, definition: WorkflowDefinition, attempt: OpenAttempt) -> None:
        self.row, self.definition, self.attempt = row, definition, attempt
        row.payload = payloads.without_secrets(definition, row.payload)
        self.recorded_context: Mapping[str, Any] = row.context
        self.results = Results(definition, row, attempt)
        self.found = Replay(row.pk)
        self.history = _history_of(row)
        self.calls = {
            call.step: call for call in Effect.objects.filter(workflow=row, undo=False).order_by("generation")
        }
        self.of_calls = {name for call in self.calls.values() for name in call.result or {}}
        self.defaults = self.results.context_json
        self.last_wait = Wait.objects.filter(workflow=row).aggregate(last=Max("pk"))["last"] or 0
        self.in_the_dark: list[str] = []  # steps whose answer is recorded in part, or not at all

    def run(self) -> Replay:
        found, definition = self.found, self.definition
        found.history_ends = _end_of(self.row)
        sealed = [each for each in definition.secret_fields if value_at(self.row.payload, each) is not None]
        if sealed:
            found.notes.append(f"Steps see these secrets as emptied: {', '.join(sealed)}.")
        if gone := [
            name for name, call in self.calls.items() if call.state in _STANDS and not definition.declares(name)
        ]:
            found.notes.append(f"The ledger has calls that this list does not declare: {', '.join(gone)}.")
        self._compare_order()
        for step in definition.steps:
            line = self._line(step)
            found.lines.append(line)
            try:
                goes_on = self._take(step, line)
                attempt_log.require_claim(self.attempt)
            except ClaimLost:
                line.does, line.why, goes_on = FAILED, "It ended the transaction. Nothing was kept.", False
            self._compare(line)
            if not goes_on:
                found.ends = found.ends or f"{step.name}: {line.does}"
                return found
        found.ends = "COMPLETE"
        return found

    # --- One step -----------------------------------------------------------------------------------

    def _line(self, step: Step) -> Line:
        said = next((self.history[name] for name in reversed(step.names) if name in self.history), None)
        return Line(step.name, "", history=str(said["outcome"]) if said else "")

    def _take(self, step: Step, line: Line) -> bool:
        """Replay a step. Returns whether the replay goes on after it."""
        call = next((self.calls[name] for name in step.names if name in self.calls), None) if step.once else None
        if call and call.result is not None and not is_unclear(call) and call.state != NOT_DONE:
            line.does, line.why = RECORDED, "It was undone since." if call.state == UNDONE else ""
            return self._merge(step, line, call.result, recorded_before=True)
        if call and is_unclear(call):
            line.does, line.why = UNCLEAR, "Whether its call happened is not known: it would be found out first."
            return self._go_on_or_end(step, line, answered=False)
        outside.taken()
        if step.once:
            effects.keys_in_use[self.row.pk] = effects.KeyInUse("replay")
        try:
            with transaction.atomic():
                call_it = partial(step.function, workflow=self.results.workflow_copy, context=self.results.context)
                try:
                    result = call_in_time(step, self.attempt, call_it)
                except Suspend:
                    left = self._left_for_a_new_wait()  # before it is rolled back
                    raise
                returned = None if result is None else as_json(result)
                if refused := outside.taken():  # the step has caught the refusal
                    return self._refused(step, line, refused, call)
        except outside.Refused:
            return self._refused(step, line, outside.taken(), call)
        except Suspend as suspend:
            self.attempt.suspended = None
            if refused := outside.taken():
                return self._refused(step, line, refused, call)
            # The answer that it waited for made it fail. That answer is void now, and a retry waits again.
            failed = line.history == FAILED and Wait.objects.filter(workflow=self.row, superseded=True).exists()
            line.does, line.why = FAILED if failed else WAITING, f"It waits for {suspend.waiting_for}."
            if line.does == line.history and left:
                line.differs = f"another wait than {', '.join(left)}"
            return False
        except (Exception, StepTimeout, SystemExit) as error:
            if refused := outside.taken():
                return self._refused(step, line, refused, call)
            return self._failed(step, line, error)
        finally:
            effects.keys_in_use.pop(self.row.pk, None)
        if returned is None:
            line.does = SKIPPED
            return True
        line.does = RAN
        return self._merge(step, line, returned)

    def _left_for_a_new_wait(self) -> list[str]:
        """The open waits that the replay did not meet, if it began another one: a wait that is met suspends."""
        waits = Wait.objects.filter(workflow=self.row, outcome="", superseded=False)
        is_new = waits.filter(pk__gt=self.last_wait).exists()
        return sorted(waits.filter(pk__lte=self.last_wait).values_list("name", flat=True)) if is_new else []

    def _merge(self, step: Step, line: Line, result: Mapping[str, Any], *, recorded_before: bool = False) -> bool:
        before = self.results.context_json
        try:
            self.results.merge(step, result, recorded_before=recorded_before)
        except StepError as error:
            return self._failed(step, line, error)
        if line.history in _DID:  # else there is nothing to compare with
            context = self.results.context_json
            differing = [
                name
                for name in context
                if (name in result or context[name] != before.get(name)) and context[name] != self._recorded(name)
            ]
            self.found.changed |= {name: (self._recorded(name), context[name]) for name in differing}
            line.differs = f"another result: {', '.join(differing)}" if differing else ""
        return True

    def _recorded(self, name: str) -> Any:
        return self.recorded_context.get(name, self.defaults.get(name))

    def _refused(self, step: Step, line: Line, refused: list[str], call: Effect | None) -> bool:
        """A call was refused: the recorded context answers for the step, or the answer is unknown."""
        line.does, line.why = WOULD_CALL, f"It calls {', '.join(refused)}: refused."
        if step.once and call and call.state == NOT_DONE:
            line.why += f" The ledger says that it was not done: {call.error_code or call.error_class or 'never sent'}."
        if step.once and line.history in _DID:
            line.why += " Its call is not on the ledger."
        return self._go_on_or_end(step, line, answered=not step.once)

    def _go_on_or_end(self, step: Step, line: Line, *, answered: bool = True) -> bool:
        """Go on with the recorded context if the step ran by the history. Returns whether the replay goes on."""
        if line.history == PASSED_OVER and step.best_effort:
            line.does = PASSED_OVER
            return True
        if line.history not in _DID or not answered:
            if line.history == FAILED:  # whatever its answer was, it failed by the history
                line.does = FAILED
            elif line.history == WAITING:
                line.does = WAITING
            return False
        known = step.returns if step.returns is not None else [*self.recorded_context.keys() - self.of_calls]
        left = {
            name: self.recorded_context[name]
            for name in known
            if name in self.recorded_context
            and name not in self.results.recorded
            and self.recorded_context[name] != self.defaults.get(name)
        }
        self.in_the_dark.append(step.name)
        line.does = RAN
        line.why += " Answered by the recorded context."
        return self._merge(step, line, left, recorded_before=True)

    def _failed(self, step: Step, line: Line, error: BaseException) -> bool:
        told = describe(error, self.results)
        line.why = ": ".join(filter(None, (told["error_code"] or told["error_class"], told["error_message"])))
        doubts = [f"the answers that {', '.join(self.in_the_dark)} got"] if self.in_the_dark else []
        if self.definition.secret_fields:
            doubts.append("secrets, which are emptied")
        if line.history in (*_DID, SKIPPED) and doubts:
            line.why += (
                f" It may need what is not on record ({' and '.join(doubts)}): answered by the recorded context."
            )
            why = line.why
            goes_on = line.history == SKIPPED or self._go_on_or_end(step, line)
            line.does, line.why = UNCLEAR, why
            return goes_on
        line.does = PASSED_OVER if step.best_effort else FAILED
        if line.does == FAILED:
            self.found.ends = _failure(step.name, told["error_code"] or told["error_class"])
        return bool(step.best_effort)

    # --- Beside the history -------------------------------------------------------------------------

    def _compare(self, line: Line) -> None:
        if line.differs or line.does == UNCLEAR:
            return
        if not line.history:
            if self.history and self._is_before_the_end(line):
                line.differs = "new: the history has no such step"
        elif _AS_RAN.get(line.does, line.does) != _AS_RAN.get(line.history, line.history):
            line.differs = f"the history says: {StepOutcome(line.history).label.lower()}"
        if not line.differs and self.found.history_ends.startswith(f"{line.step}: {line.does}"):
            self.found.ends = self.found.ends or self.found.history_ends

    def _is_before_the_end(self, line: Line) -> bool:
        """Whether the history goes past this step: it has a later step of the list, or is complete."""
        names = [step.name for step in self.definition.steps]
        later = self.definition.steps[names.index(line.step) + 1 :]
        return self.row.status == Workflow.Status.COMPLETE or any(
            name in self.history for step in later for name in step.names
        )

    def _compare_order(self) -> None:
        known = [(name, self.definition.find_step(name)) for name in self.history]
        self.found.lines += [
            Line(name, GONE, str(self.history[name]["outcome"]), "not in this list")
            for name, step in known
            if step is None
        ]
        then = [step.name for _, step in known if step]
        now = [step.name for step in self.definition.steps if step.name in then]
        if then != now:
            self.found.lines.append(Line(f"the order: {', '.join(now)}", "", "", f"the history: {', '.join(then)}"))


_DID = (RAN, RECORDED)
_AS_RAN: dict[str, str] = {RECORDED: RAN}
_STANDS = (*IN_DOUBT, Effect.State.DONE)


def _history_of(row: Workflow) -> dict[str, Mapping[str, Any]]:
    """What each step did, in order, in the last attempt that ran steps from the first on."""
    followed_up = (Attempt.Outcome.FOLLOWED_UP, Attempt.Outcome.FOLLOW_UP_FAILED)
    for attempt in Attempt.objects.filter(workflow=row).exclude(outcome__in=followed_up).order_by("-number"):
        if entries := {entry["step"]: entry for entry in attempt.steps if not entry.get("undo")}:
            return entries
    return {}


def _failure(step: str, code: str) -> str:
    return f"{step}: {FAILED}, {code}"


def _end_of(row: Workflow) -> str:
    """Where the workflow ended, or is now, by the history."""
    if row.status == Workflow.Status.COMPLETE:
        return "COMPLETE"
    if row.cancelled_at:
        return f"{row.current_step}: cancelled"
    if row.status == Workflow.Status.FAILED or row.last_error_class:
        return _failure(row.current_step, row.last_error_code or row.last_error_class)
    return f"{row.current_step}: {WAITING}" if row.waiting_for else f"{row.current_step}: under way"


def clear(changed: Mapping[str, tuple[Any, Any]], secret: Any) -> list[str]:
    """The differing values, as `field: recorded -> now`. Hides what looks like a secret."""
    lines = []
    for name, values in changed.items():
        then, now = (json.dumps(value, ensure_ascii=False)[:200] for value in values)
        hidden = secret.search(json.dumps({name: values}))
        lines.append(f"{name}: {'a secret differs' if hidden else f'{then} -> {now}'}")
    return lines
