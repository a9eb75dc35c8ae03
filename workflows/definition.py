"""A workflow's definition: the list of its steps in order, each with its policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache, cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any, Protocol, overload

from django.conf import settings
from django.utils.module_loading import import_string
from pydantic import BaseModel

from workflows.before_undo import BeforeUndo
from workflows.correctable import Correctable
from workflows.errors import policy_number
from workflows.extension import installed
from workflows.models import Workflow
from workflows.spelling import did_you_mean, explain_options, own_name
from workflows.wording import Wording, words_for_step

if TYPE_CHECKING:  # search keys import this module
    from workflows.search.search_keys import SearchKey


class WorkflowStep(Protocol):
    """A step: a plain function. It returns None when it does not apply, else what it adds to the context."""

    __name__: str

    def __call__(self, *, workflow: Workflow, context: Any) -> Mapping[str, Any] | None: ...


@explain_options
@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How a step is retried: `max_attempts` failures in a row; delays in seconds; jitter as a share of the delay.

    A field that is None is taken from the next policy: the error's, then the step's, then the definition's. Raises
    TypeError or ValueError, naming the field, for a value that is not a number.
    """

    max_attempts: int | None = None
    base_delay: float | None = None
    max_delay: float | None = None
    jitter_factor: float | None = None

    def __post_init__(self) -> None:
        for field in ("max_attempts", "base_delay", "max_delay", "jitter_factor"):
            policy_number(field, getattr(self, field))


@explain_options
@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """When unexplained failures at a step park its workflows instead of failing them.

    The brake needs `failures` workflows `within` the time, and this `share` of the last twenty workflows that came to
    the step. It does not help a definition that gets fewer submissions than that. With 0 `failures` it never parks any.
    Raises ValueError for impossible limits.
    """

    failures: int = 5
    within: timedelta = timedelta(minutes=5)
    share: float = 0.5

    def __post_init__(self) -> None:
        in_time = timedelta(minutes=1) <= self.within <= timedelta(hours=1)
        if not (self.failures >= 0 and in_time and 0 < self.share <= 1):
            raise ValueError("A brake takes 0 failures (off) or more, within a minute to an hour, a share of up to 1.")


@explain_options
@dataclass(frozen=True, slots=True)
class Slo:
    """What a definition promises; alerts watch it. 95% of workflows take at most `p95`, not counting their waits.

    `completed` is the share of workflows that complete. It leaves out cancelled workflows and failures that the patient
    caused. A workflow that has not ended after `longest` is stuck. Raises ValueError for impossible limits.
    """

    p95: timedelta
    completed: float
    longest: timedelta

    def __post_init__(self) -> None:
        if not (timedelta(0) < self.p95 <= self.longest and 0 < self.completed < 1):
            raise ValueError("An SLO has a p95 above 0, no longer than `longest`, and a share between 0 and 1.")


@explain_options
@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long a finished workflow keeps its `content` (what was sent, and the results), and how long its `rows`.

    Raises ValueError for content under a week or rows under a month; the database refuses these too.
    """

    content: timedelta = timedelta(days=90)
    rows: timedelta = timedelta(days=400)

    def __post_init__(self) -> None:
        if self.content < timedelta(days=7):
            raise ValueError("Content is kept for a week or longer.")
        if self.rows < max(self.content, timedelta(days=30)):
            raise ValueError("Rows are kept for thirty days or longer, and not for less than their content.")


class Lookup(Protocol):
    """Asks a service whether a step's call happened. Returns the step's result, or None if the call is not found."""

    def __call__(self, *, workflow: Workflow, context: Any, effect: Any) -> Mapping[str, Any] | None: ...


class Undo(Protocol):
    """Undoes the step's call `effect`. The engine calls it with the same idempotency key until it succeeds.

    `context` is built from the ledger: it holds only what `once` steps returned. People can see what the undo returns.
    """

    def __call__(self, *, workflow: Workflow, context: Any, effect: Any) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """A call that a service has performed, as the service reports it: its key, time, id and amount of money."""

    key: str
    at: str = ""
    reference: str = ""
    amount: str = ""


class Listing(Protocol):
    """Lists all calls of one kind that a service has performed since a time, whichever system made them."""

    def __call__(self, since: datetime) -> Iterable[ServiceCall]: ...


# Seconds. Our clients wait a third of this: a service that has not answered by then will not.
TIMEOUT = 30.0
# Seconds. No call is on its way for longer than its step may take.
SETTLE = TIMEOUT


@explain_options
@dataclass(frozen=True)
class Step:
    """One entry of a step list: a function and its policy.

    - `best_effort`: its first error is recorded, and the workflow goes on. Only `parks` and `follow_up` retry it.
    - `once`: it makes one changing call; the ledger keeps the call, which is not repeated.
    - `repeatable`: it is not `once`, but repeating its call does no harm, even weeks later: the service acts once for
      each idempotency key, or the call sets a value that is the same each time.
    - `undo`: undoes the call when the workflow fails for good. `lookup`: asks whether a call in doubt happened; "not
      found" counts only `settle` seconds after the call started. `undo_lookup`: asks, while the engine waits for a
      person's answer, whether somebody has undone the call. It returns what the undo returns (`{}` for nothing), or
      None if nobody has.
    - `stays`: its call has no undo, and does no harm if it is left behind when the workflow fails later.
    - `key_ttl`: how long the service honours the idempotency key.
    - `timeout`: seconds that the function may take; its undo and lookup get as much. `retry`: for its retryable errors.
    - `name`: the function's by default. `formerly`: earlier names, oldest first; records under them are found.
    - `parks`: while its service is unavailable, this best-effort step is retried and parked, not skipped.
    - `needs`: services that the step does not call, and later steps by name. While one of the services is down, or many
      workflows fail at one of the steps, the workflow is parked before this step.
    - `follow_up`: the retry policy of a best-effort step that is deferred after a failure that may pass.
    - `returns`: the fields of a `once` step's result. A person who says that the call happened fills them in. `()`
      means that the step returns `{}`, None that its fields are not declared.
    """

    function: WorkflowStep
    best_effort: bool = False
    once: bool = False
    repeatable: bool = False
    undo: Undo | None = None
    lookup: Lookup | None = None
    undo_lookup: Lookup | None = None
    stays: bool = False
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
            object.__setattr__(self, "name", own_name(self.function))

    @cached_property
    def longest(self) -> float:
        """Seconds that the step may take in all: a possible lookup, then the call."""
        return self.timeout * 2 if self.lookup or self.undo_lookup else self.timeout

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.formerly, self.name)

    @cached_property
    def identity(self) -> str:
        """The name under which its effects are recorded: the oldest, because workers of every release know it.

        During a deploy a release from before the rename may run the workflow next.
        """
        return self.names[0]


# The column's length. Bits of a number that is an id of something.
LONGEST_LINKING_ID, _LONGEST_NUMBER = 200, 1024

UNKNOWN_STEP = "(unknown)"


def removed_step(name: str) -> Step:
    """Stands for a step that is no longer in the list; only its name may be known. It is never called."""

    def gone(*, workflow: Workflow, context: Any) -> None: ...

    return Step(gone, name=name or UNKNOWN_STEP)


def is_to_be_undone(definition: WorkflowDefinition | None, step_name: str, had_undo: bool) -> bool:
    """Whether an effect has to be undone. If its step was removed or has lost its undo, a person is asked."""
    step = definition.find_step(step_name) if definition else None
    return had_undo or bool(step and step.undo)


def undo_of(name: str) -> str:
    """The name of a step's undo, cut to the length of the column."""
    return f"undo {name}"[:100]


# Words that name a password, a token or a card in a payload.
SECRET = re.compile(
    r"pass(word|wd|code|phrase)|secret|token|card|cv[vc]|session|api_?key|credential|\bpin\b", re.IGNORECASE
)


# The lifecycle events that a definition can publish: COMPLETE, FAILED, or waiting for a person.
LIFECYCLE = ("completed", "failed", "waiting")


# Options of definitions and steps that need a feature, by the feature's package.
OPTIONS_OF_FEATURES = {
    "outages": ("brake", "needs", "parks"),
    "business_key": ("business_key", "same_person"),
    "deferred_steps": ("follow_up",),
    "corrections": ("correctable",),
    "retention": ("retention",),
    "outbox": ("publishes",),
    "doctor": ("listings",),
}


class NoContext(BaseModel):
    """The context of a definition whose steps return nothing that others read."""


@explain_options
class WorkflowDefinition:
    """A kind of workflow: its name (stored with each row), its steps in order, and the model of their context.

    - `context_class`: by default it has no fields, and steps return `{}` or None.
    - `retry`: the policy of steps without their own. `queue`: names the workers that run it.
    - `priority`: of the workflows that have not started, the highest goes first, except every tenth (`engine.lanes`).
    - `linking_id`: the payload field (dotted if nested) that the intake copies to that column: a text, or a number.
    - `search_keys`: the fields by which people find a workflow, by kind; the row stores hashes of them.
    - `business_key`: the fields that identify one piece of business. In a tenant only one workflow at a time may have
      the same values (`features.business_key`). A field that has a search key is normalised as there, others are plain
      text. `within`: a workflow that is accepted later than this after a COMPLETE one ended is no duplicate of it.
      `same_person`: two or more fields that distinguish people with the same business key. Raises ValueError for a
      negative `within`.
    - `public_fields`: the payload fields (dotted too) whose values identify nobody. Staff see them, and errors may
      quote them. The name of an object includes all its fields.
    - `revealable`: the fields that a user with the permission may see in clear, for a purpose that is recorded. Raises
      ValueError for a field that is named like a password, a token or a card.
    - `secret_fields`: the payload fields (dotted too) that are stored sealed (`workflows.sealing`); only steps see
      their values. Raises ValueError for a field by which a workflow is found, compared or shown.
    - `input_class`: the model that validates the input of `POST /v1/workflows`. Without it any object is accepted, as
      in a submission, and the first step checks it.
    - `expires_after`: how long a workflow may take. After that it fails before its next step, and its calls are undone.
    - `retired`: `once` steps that were removed on purpose. While the ledger holds a call of a step that is neither
      retired nor in the list, the workflow makes no new call, because the step may have been renamed.
    - `wording`: the words that people read (`workflows.wording`).
    - `brake`: when unexplained failures park workflows instead of failing them (docs/outages.md).
    - `slo`: what alerts watch; without it no alert does.
    - `before_undo`: `ask(...)` names the team that decides before a failed workflow is undone
      (`workflows.before_undo`).
    - `correctable`: the fields that two people may correct when a workflow has failed (`operations.corrections`).
      Raises ValueError for an amount, for the linking id, and for a step that is not `once`.
    - `two_people`: what lets the charge be made again, or its refund, takes a second person (`operations.two_people`).
      Raises ValueError if the wording names no charge.
    - `retention`: how long a finished workflow is kept (`workflows.retention`): 90 days by default.
    - `publishes`: its lifecycle events, from LIFECYCLE (docs/outbox.md). Raises ValueError for any other.
    - `listings`: how to list the calls that a service has performed, by step name or `undo <name>`. `manage.py
      reconcile` uses them to find what a restored database has lost.
    """

    by_clients = True  # whether a client of the API may start it

    def __init__(
        self,
        *,
        name: str,
        steps: Sequence[Step | WorkflowStep],
        context_class: type[BaseModel] = NoContext,
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
        two_people: bool = False,
        retention: Retention | None = None,
        publishes: Sequence[str] = (),
    ) -> None:
        self.stated = frozenset(name for name, value in locals().items() if value)  # the options that are set
        self.name = name
        self.steps = tuple(step if isinstance(step, Step) else Step(step) for step in steps)
        self.context_class = context_class
        self.retry = retry
        self.queue = queue
        self.priority = priority
        self.linking_id = linking_id
        self.search_keys = dict(search_keys or {})
        self.business_key = _names(business_key)
        self.same_person = _names(same_person)
        self.within = within
        if within < timedelta(0):
            raise ValueError(f"Duplicates of {name!r} are recognised within a time after the first has ended.")
        self.expires_after = expires_after
        self.public_fields = frozenset(_names(public_fields))
        self.revealable = _names(revealable)
        if secrets := [field for field in self.revealable if SECRET.search(field)]:
            raise ValueError(f"A secret is revealed to nobody: {', '.join(secrets)} of {name!r}.")
        self.secret_fields = _names(secret_fields)
        self.input_class = input_class
        self.retired = _names(retired)
        self.wording = wording or Wording()
        self.brake = brake or Brake()
        self.slo = slo
        self.listings = dict(listings or {})
        self.before_undo = before_undo
        self.correctable = correctable
        self.two_people = two_people
        if two_people and not self.charge_names:
            raise ValueError(
                f"{name!r} asks two people about a charge, and its wording names none: Wording(money=...)."
            )
        self.publishes = frozenset(_names(publishes))
        if unknown := sorted(self.publishes - {*LIFECYCLE}):
            raise ValueError(f"{name!r} cannot publish {', '.join(unknown)}: only {', '.join(LIFECYCLE)}.")
        self.retention = retention or Retention()
        self._check_secret_fields()
        self._check_correctable()

    def _check_secret_fields(self) -> None:
        """Raise ValueError for a secret field whose value is needed outside the steps."""
        visible = {self.linking_id, *self.business_key, *self.same_person, *self.public_fields, *self.revealable}
        visible |= {key.field for key in self.search_keys.values()} | {field.path for field in self.wording.caller}
        visible |= set(self.correctable.fields) if self.correctable else set()
        for field in self.secret_fields:
            if not all(name.isascii() and name.isidentifier() for name in field.split(".")):
                raise ValueError(f"{field!r} of {self.name!r} is not a secret field: write names, with dots between.")
            if any(f"{field}.".startswith(f"{other}.") or f"{other}.".startswith(f"{field}.") for other in visible):
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
                meant = did_you_mean(unknown[0], (each.name for each in self.steps if each.once))
                raise ValueError(f"{field!r} of {self.name!r} names {', '.join(unknown)}: no step that is once.{meant}")

    def find_step(self, name: str) -> Step | None:
        """The step of that name, now or formerly; None for a removed step."""
        return next((step for step in self.steps if name in step.names), None)

    def declares(self, name: str) -> bool:
        """Whether this release can treat a call that was recorded under this name.

        It can for a `once` step, under any of its names, and for a retired step. A step that is no longer `once` would
        repeat its call.
        """
        step = self.find_step(name)
        return name in self.retired or (step is not None and step.once)

    def find_or_removed_step(self, name: str) -> Step:
        """The step with this name, now or formerly; for a removed step, a stand-in that has only the name."""
        return self.find_step(name) or removed_step(name)

    @cached_property
    def has_once_steps(self) -> bool:
        return any(step.once for step in self.steps)

    @property
    def charge_names(self) -> Collection[str]:
        """The names under which the charging step's calls are recorded; empty if the wording names no such step."""
        return self.find_or_removed_step(self.wording.money.step).names if self.wording.money else ()

    def linking_id_in(self, payload: Mapping[str, Any]) -> str | None:
        """The value of the `linking_id` field as text, or None if it is missing or too long; a step reports that."""
        value = text_of(value_at(payload, self.linking_id))
        return value if value and len(value) <= LONGEST_LINKING_ID else None

    def unfit_fields(self, payload: Mapping[str, Any]) -> list[str]:
        """The fields that a workflow is to be found or compared by, and cannot: objects, lists, a long linking id."""
        fields = {self.linking_id, *self.business_key, *(key.field for key in self.search_keys.values())} - {""}
        values = {field: value_at(payload, field) for field in fields}
        unfit = {field for field, value in values.items() if value is not None and text_of(value) is None}
        if len(text_of(values.get(self.linking_id)) or "") > LONGEST_LINKING_ID:
            unfit.add(self.linking_id)
        return sorted(unfit)

    def __repr__(self) -> str:
        return f"<WorkflowDefinition {self.name}: {len(self.steps)} steps>"


@overload
def workflow(function: WorkflowStep, /) -> WorkflowDefinition: ...


@overload
def workflow(*, name: str = "", **options: Any) -> Callable[[WorkflowStep], WorkflowDefinition]: ...


def workflow(function: WorkflowStep | None = None, /, *, name: str = "", **options: Any) -> Any:
    """Make one step function a definition: `@workflow`, or `@workflow(queue="mail", retry=Retry(max_attempts=5))`.

    It is named after the function, or by `name`, and takes the options of WorkflowDefinition. The decorated name is the
    definition: the setting WORKFLOWS has its dotted path, and `submit(send_receipt, {...})` starts it. A step with
    options of its own (`once=True`) needs a WorkflowDefinition.
    """

    def define(step: WorkflowStep) -> WorkflowDefinition:
        return WorkflowDefinition(name=name or own_name(step), steps=[step], **options)

    return define(function) if function else define


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several. A single text is never taken for its letters: a secret field would be stored in clear."""
    return (given,) if isinstance(given, str) else tuple(given)


def value_at(payload: Any, field: str) -> Any:
    """The value of a payload field (dotted if nested); None if there is none."""
    for name in filter(None, field.split(".")):
        # The dict comes first: a check against the abstract class takes four times as long, for each field.
        payload = payload.get(name) if isinstance(payload, (dict, Mapping)) else None
    return payload


def text_of(value: Any) -> str | None:
    """A payload's value as the text that it is found by: a number as `7`, also for 7.0. None for what is no one value.

    The primary key of a Django model is a number: taken for no value, its workflow would wait for ever, or run twice.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() <= _LONGEST_NUMBER:  # str() refuses numbers of 4,300 digits
        return str(value)
    if isinstance(value, float) and isfinite(value):
        return f"{Decimal(repr(value)).normalize():f}"
    return None


def money_in(definition: WorkflowDefinition | None, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The amount and currency of the payload, in their original fields: kept when the payload is emptied."""
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
    """The wording of a definition; an empty one for a type that this release does not know."""
    return definition.wording if definition else Wording()


@cache
def definitions() -> Mapping[str, WorkflowDefinition]:
    """All definitions of this release by name: the dotted paths in `settings.WORKFLOWS`, and those of features."""
    loaded = [each for extension in installed() for each in extension.definitions()]
    loaded += [import_string(path) for path in settings.WORKFLOWS]
    return {definition.name: definition for definition in loaded}


def wording_of_type(workflow_type: str) -> Wording:
    """The wording of a workflow type; an empty one for a type that this release does not know."""
    return wording_of(definitions().get(workflow_type))


def titled_step(workflow_type: str, step: str) -> str:
    """A step's title in quotes, as people know it; for an undo (`undo charge`), the title of what it reverses."""
    of_step = step.removeprefix(undo_of(""))
    titled = words_for_step(wording_of_type(workflow_type), of_step).titled
    return titled if of_step == step else f"the reversal of {titled}"
