"""A workflow's definition: the list of its steps in order, each with its policy."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings
from django.utils.module_loading import import_string
from pydantic import BaseModel

from workflows.before_undo import BeforeUndo
from workflows.correctable import Correctable
from workflows.errors import policy_number
from workflows.models import Workflow
from workflows.wording import Wording, words_for_step

if TYPE_CHECKING:  # search keys are read from payloads by a definition: they import this module
    from workflows.search.search_keys import SearchKey


class WorkflowStep(Protocol):
    """A step: a plain function. It returns None when it does not apply, else what it adds to the context."""

    __name__: str

    def __call__(self, *, workflow: Workflow, context: Any) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A retry policy: `max_attempts` failures of one step in a row, delays in seconds, jitter as a share of the delay.

    None leaves the field to the next policy: the error's, then the step's, then the definition's. Raises TypeError or
    ValueError, naming the field, for a value that is not a number.
    """

    max_attempts: int | None = None
    base_delay: float | None = None
    max_delay: float | None = None
    jitter_factor: float | None = None

    def __post_init__(self) -> None:
        for field in ("max_attempts", "base_delay", "max_delay", "jitter_factor"):
            policy_number(field, getattr(self, field))


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """When failures at a step that nobody explains stop being verdicts, and workflows are parked instead.

    So many workflows `within` a time, if they are at least this `share` of the last twenty that came to the step. A
    definition with fewer submissions than that, one an hour say, is not helped by it. Raises ValueError for limits that
    make no sense.
    """

    failures: int = 5
    within: timedelta = timedelta(minutes=5)
    share: float = 0.5

    def __post_init__(self) -> None:
        in_time = timedelta(minutes=1) <= self.within <= timedelta(hours=1)
        if not (self.failures >= 1 and in_time and 0 < self.share <= 1):
            raise ValueError("A brake takes at least 1 failure, within a minute to an hour, and a share of up to 1.")


@dataclass(frozen=True, slots=True)
class Slo:
    """What a definition promises, and alerts watch: 95 of 100 workflows take `p95` at the most, but for their waits.

    `completed`: the share that completes, of those that neither fail by the patient's own doing nor are cancelled.
    `longest`: one that has not ended by then is stuck. Raises ValueError for limits that make no sense.
    """

    p95: timedelta
    completed: float
    longest: timedelta

    def __post_init__(self) -> None:
        if not (timedelta(0) < self.p95 <= self.longest and 0 < self.completed < 1):
            raise ValueError("An SLO has a p95 above 0, no longer than `longest`, and a share between 0 and 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long what has finished keeps its `content`: what was sent, and what came of it; and then its `rows`.

    Raises ValueError for less than a week, or a month for rows, which the database refuses.
    """

    content: timedelta = timedelta(days=90)
    rows: timedelta = timedelta(days=400)

    def __post_init__(self) -> None:
        if self.content < timedelta(days=7):
            raise ValueError("Content is kept for a week or longer.")
        if self.rows < max(self.content, timedelta(days=30)):
            raise ValueError("Rows are kept for thirty days or longer, and not for less than their content.")


class Lookup(Protocol):
    """Asks a downstream whether a step's call has happened: the step's result if it has, None if it is not found."""

    def __call__(self, *, workflow: Workflow, context: Any, effect: Any) -> Mapping[str, Any] | None: ...


class Undo(Protocol):
    """Undoes a step's call, whose `effect` is given. It may be called again, under the same key, until it succeeds.

    `context` is built from the ledger alone: it holds only what the `once` steps returned. The undo's own result is
    recorded for people.
    """

    def __call__(self, *, workflow: Workflow, context: Any, effect: Any) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """A call that a downstream has performed, in its own words: when, under which id, and how much money it moved."""

    key: str
    at: str = ""
    reference: str = ""
    amount: str = ""


class Listing(Protocol):
    """Lists the calls of one kind that a downstream has performed at or after a time, whoever made them."""

    def __call__(self, since: datetime) -> Iterable[ServiceCall]: ...


# Seconds. Three times as long as our clients wait for an answer: a service that has not answered by then will not.
TIMEOUT = 30.0
# Seconds. A call cannot be on its way for longer than its step may take.
SETTLE = TIMEOUT


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a step list: a function and its policy.

    - `best_effort`: its errors are recorded and swallowed.
    - `once`: it makes one changing call, which is kept on the ledger and not made again.
    - `repeatable`: it is not `once`, and repeating its call does no harm, even weeks later: the service acts only once
      for the same key, for good, or the call sets what must be true whenever it runs.
    - `undo`: undoes that call when the workflow fails for good. `lookup`: asks whether a call in doubt has happened;
      "not found" counts only `settle` seconds after the call started. `undo_lookup`: asks, while a person is asked,
      whether anybody has undone the call: it returns what the undo returns (`{}` for nothing) if so, None if not.
    - `key_ttl`: how long the downstream honours the idempotency key.
    - `timeout`: seconds that the function may take, and its undo and lookup too. `retry`: for its retryable errors.
    - `name`: the function's by default. `formerly`: its earlier names, the oldest first; records under them are found.
    - `parks`: a best-effort step that is retried and parked while its service is unavailable, not passed over.
    - `needs`: services, and later steps by their names, without which it does not start, although it does not call
      them itself: while one of these services is down, or many fail at one of these steps, the workflow is parked.
    - `follow_up`: the policy of a best-effort step that is deferred when it has failed for a reason that passes.
    - `returns`: the fields that the result of a `once` step holds; a person who says that the call happened fills them
      in; `()` for a step that returns `{}`, None when it is not declared.
    """

    function: WorkflowStep
    best_effort: bool = False
    once: bool = False
    repeatable: bool = False
    undo: Undo | None = None
    lookup: Lookup | None = None
    undo_lookup: Lookup | None = None
    key_ttl: timedelta | None = None
    settle: float = SETTLE
    timeout: float = TIMEOUT
    retry: Retry | None = None
    name: str = ""
    formerly: tuple[str, ...] = ()
    returns: tuple[str, ...] | None = None
    parks: bool = False
    needs: tuple[str, ...] = ()
    follow_up: Retry | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.function.__name__)

    @property
    def longest(self) -> float:
        """Seconds that it may take in all: a lookup, perhaps, and then the call."""
        return self.timeout * 2 if self.lookup or self.undo_lookup else self.timeout

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names, the oldest first."""
        return (*self.formerly, self.name)

    @property
    def identity(self) -> str:
        """The name under which its effects are recorded: its oldest one, which workers of every release know.

        During a deploy a release that does not know of the rename may be the next one to run the workflow.
        """
        return self.names[0]


UNKNOWN_STEP = "(unknown)"


def removed_step(name: str) -> Step:
    """A step that has left the list: only its name, if that is known. It is never called."""

    def gone(*, workflow: Workflow, context: Any) -> None: ...

    return Step(gone, name=name or UNKNOWN_STEP)


def is_to_be_undone(definition: WorkflowDefinition | None, step_name: str, had_undo: bool) -> bool:
    """Whether an effect is to be undone: also if its step was removed or has lost its undo; then a person is asked."""
    step = definition.find_step(step_name) if definition else None
    return had_undo or bool(step and step.undo)


def undo_of(name: str) -> str:
    """The name of a step's undo, cut to the length of a step's name."""
    return f"undo {name}"[:100]


# What a sender calls a password, a token or a card.
SECRET = re.compile(
    r"pass(word|wd|code|phrase)|secret|token|card|cv[vc]|session|api_?key|credential|\bpin\b", re.IGNORECASE
)


# What a definition can publish: that a workflow is COMPLETE, has FAILED, or waits for a person.
LIFECYCLE = ("completed", "failed", "waiting")


# Options of definitions and steps that nothing obeys unless a feature is installed, by its room.
OPTIONS_OF_FEATURES = {
    "outages": ("brake", "needs", "parks"),
    "business_key": ("business_key", "same_person"),
    "deferred_steps": ("follow_up",),
    "corrections": ("correctable",),
    "retention": ("retention",),
    "outbox": ("publishes",),
    "doctor": ("listings",),
}


class WorkflowDefinition:
    """A kind of workflow: its name (stored with each row), its steps in order, and the model of their context.

    - `retry`: the policy of steps without their own. `queue`: names the workers that run it.
    - `priority`: of what has not begun, the highest goes first, but for one in ten (`engine.lanes`).
    - `linking_id`: the payload's field (dotted for a nested one) that is copied to that column at the entry.
    - `search_keys`: the fields by which people find a workflow, by kind: hashes of them are stored with it.
    - `business_key`: the fields of which one workflow at a time may have the same values, in its tenant
      (`features.business_key`). Each is read as its search key reads it, else as plain text. `within`: one that is
      accepted later than that after the end of a COMPLETE one is no duplicate of it. `same_person`: the fields, two or
      more, by which people who have the same key are told apart. Raises ValueError for a `within` that is no time.
    - `public_fields`: those of the payload (dotted too) whose values identify nobody: staff see them, and errors may
      repeat them. Naming an object opens all that is in it.
    - `revealable`: those whose values a user with the right sees in full, for a purpose, which is recorded. Never a
      password, a token or a card: raises ValueError for a name like these.
    - `secret_fields`: those of the payload (dotted too) that are stored sealed (`workflows.sealing`): only steps see
      their values. Raises ValueError for one that is found, compared or shown by its value.
    - `input_class`: the model that `POST /v1/workflows` checks an input against; without one any object is accepted, as
      in a submission, and the first step checks it.
    - `expires_after`: how long a workflow may take; then it fails before its next step, and its calls are undone.
    - `retired`: `once` steps that have left the list on purpose. While the ledger holds a call of a step that is
      neither retired nor in the list, the workflow makes no new call: the step may be the same one under a new name.
    - `wording`: the words that people read (`workflows.wording`).
    - `brake`: when failures that nobody explains park workflows instead of failing them (docs/outages.md).
    - `slo`: what alerts watch; without one none does.
    - `before_undo`: `ask(...)`, whom to ask before its calls are undone when it has failed (`workflows.before_undo`).
    - `correctable`: the fields that two people may correct when a workflow has failed (`operations.corrections`).
      Raises ValueError for money, for what signals find a workflow by, and for a step that is not `once`.
    - `retention`: how long it is kept once it has finished (`workflows.retention`): 90 days by default.
    - `publishes`: what others are told of a workflow, of LIFECYCLE (docs/outbox.md). Raises ValueError for all else.
    - `listings`: which calls a service has performed, by the name of the step, or `undo <name>`. With them `manage.py
      reconcile` finds what a restored database has lost.
    """

    def __init__(
        self,
        *,
        name: str,
        steps: Sequence[Step | WorkflowStep],
        context_class: type[BaseModel],
        retry: Retry | None = None,
        queue: str = "default",
        priority: int = 0,
        linking_id: str = "",
        search_keys: Mapping[str, SearchKey] | None = None,
        business_key: str | Sequence[str] = (),
        within: timedelta = timedelta(hours=24),
        same_person: str | Sequence[str] = (),
        expires_after: timedelta | None = None,
        public_fields: Sequence[str] = (),
        revealable: Sequence[str] = (),
        secret_fields: Sequence[str] = (),
        input_class: type[BaseModel] | None = None,
        retired: Sequence[str] = (),
        wording: Wording | None = None,
        brake: Brake | None = None,
        slo: Slo | None = None,
        listings: Mapping[str, Listing] | None = None,
        before_undo: BeforeUndo | None = None,
        correctable: Correctable | None = None,
        retention: Retention | None = None,
        publishes: Sequence[str] = (),
    ) -> None:
        self.stated = frozenset(name for name, value in locals().items() if value)  # the options that it has
        self.name = name
        self.steps = tuple(step if isinstance(step, Step) else Step(step) for step in steps)
        self.context_class = context_class
        self.retry = retry
        self.queue = queue
        self.priority = priority
        self.linking_id = linking_id
        self.search_keys = dict(search_keys or {})
        self.business_key = (business_key,) if isinstance(business_key, str) else tuple(business_key)
        self.same_person = (same_person,) if isinstance(same_person, str) else tuple(same_person)
        self.within = within
        if within < timedelta(0):
            raise ValueError(f"Duplicates of {name!r} are recognised within a time after the first has ended.")
        self.expires_after = expires_after
        self.public_fields = frozenset(public_fields)
        self.revealable = tuple(revealable)
        if secrets := [field for field in self.revealable if SECRET.search(field)]:
            raise ValueError(f"A secret is revealed to nobody: {', '.join(secrets)} of {name!r}.")
        self.secret_fields = tuple(secret_fields)
        self.input_class = input_class
        self.retired = tuple(retired)
        self.wording = wording or Wording()
        self.brake = brake or Brake()
        self.slo = slo
        self.listings = dict(listings or {})
        self.before_undo = before_undo
        self.correctable = correctable
        self.publishes = frozenset([publishes] if isinstance(publishes, str) else publishes)
        if unknown := sorted(self.publishes - {*LIFECYCLE}):
            raise ValueError(f"{name!r} cannot publish {', '.join(unknown)}: only {', '.join(LIFECYCLE)}.")
        self.retention = retention or Retention()
        self._check_secret_fields()
        self._check_correctable()

    def _check_secret_fields(self) -> None:
        """Raise ValueError for a field whose value is needed where no step runs."""
        told = {self.linking_id, *self.business_key, *self.same_person, *self.public_fields, *self.revealable}
        told |= {key.field for key in self.search_keys.values()} | {field.path for field in self.wording.caller}
        told |= set(self.correctable.fields) if self.correctable else set()
        for field in self.secret_fields:
            if not all(name.isascii() and name.isidentifier() for name in field.split(".")):
                raise ValueError(f"{field!r} of {self.name!r} is not a secret field: write names, with dots between.")
            if any(f"{field}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field}.") for other in told):
                raise ValueError(f"{field!r} of {self.name!r} cannot be secret: it is found, compared or shown by it.")

    def _check_correctable(self) -> None:
        if self.correctable is None:
            return
        money = self.wording.money
        for field, steps in self.correctable.fields.items():
            if money and field in (money.amount, money.currency):
                raise ValueError(f"{field!r} of {self.name!r} cannot be corrected: it says what is charged.")
            if field in self.business_key and self.correctable.is_number(field):
                raise ValueError(
                    f"{field!r} of {self.name!r} cannot be corrected: it is an amount of the business key."
                )
            if field == self.linking_id:
                raise ValueError(f"{field!r} of {self.name!r} cannot be corrected: signals find the workflow by it.")
            if unknown := [step for step in steps if not self.declares(step)]:
                raise ValueError(f"{field!r} of {self.name!r} names {', '.join(unknown)}: no step that is once.")

    def find_step(self, name: str) -> Step | None:
        """The step of that name, now or formerly; None for a removed step."""
        return next((step for step in self.steps if name in step.names), None)

    def declares(self, name: str) -> bool:
        """Whether this release knows how to treat a call that was recorded under that name.

        It does for a `once` step, under any of its names, and for a retired one; a step that is no longer `once` would
        repeat its call.
        """
        step = self.find_step(name)
        return name in self.retired or (step is not None and step.once)

    def find_or_removed_step(self, name: str) -> Step:
        """The step of that name, now or formerly; for a removed step, one with only the name."""
        return self.find_step(name) or removed_step(name)

    @property
    def charge_names(self) -> Collection[str]:
        """The names under which calls of the step that charges are recorded; none if no words say which step does."""
        return self.find_or_removed_step(self.wording.money.step).names if self.wording.money else ()

    def linking_id_in(self, payload: Mapping[str, Any]) -> str | None:
        """The value of the `linking_id` field; None if it is missing or too long. A step checks it."""
        value = value_at(payload, self.linking_id)
        return value if isinstance(value, str) and 0 < len(value) <= 200 else None

    def __repr__(self) -> str:
        return f"<WorkflowDefinition {self.name}: {len(self.steps)} steps>"


def value_at(payload: Any, field: str) -> Any:
    """The value of a field of a payload, dotted for a nested one; None if there is none."""
    for name in filter(None, field.split(".")):
        # The dict comes first: asking an abstract class takes four times as long, for each field.
        payload = payload.get(name) if isinstance(payload, (dict, Mapping)) else None
    return payload


def money_in(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> dict[str, Any]:
    """What the payload says of the amount, where it stood: what is kept of a payload that is emptied."""
    kept: dict[str, Any] = {}
    money = definition.wording.money if definition else None
    for field, is_one in ((money.amount, _is_amount), (money.currency, _is_currency)) if money else ():
        if is_one(value := value_at(payload, field)):
            *parents, name = field.split(".")
            inside = kept
            for parent in parents:
                inside = inside.setdefault(parent, {})
            inside[name] = value
    return kept


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is not None)


def _is_currency(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[A-Za-z]{3}", value) is not None


def wording_of(definition: WorkflowDefinition | None) -> Wording:
    """What people read of a definition; no words for a type that this release does not know."""
    return definition.wording if definition else Wording()


@cache
def definitions() -> Mapping[str, WorkflowDefinition]:
    """Every definition of this release by name, from the dotted paths in `settings.WORKFLOWS`."""
    loaded = [import_string(path) for path in settings.WORKFLOWS]
    return {definition.name: definition for definition in loaded}


def wording_of_type(workflow_type: str) -> Wording:
    """What people read of a type of workflow; no words for one that this release does not know."""
    return wording_of(definitions().get(workflow_type))


def titled_step(workflow_type: str, step: str) -> str:
    """A step of a type of workflow as people know it, in quotes; of an undo (`undo charge`), what it reverses."""
    of_step = step.removeprefix(undo_of(""))
    titled = words_for_step(wording_of_type(workflow_type), of_step).titled
    return titled if of_step == step else f"the reversal of {titled}"
