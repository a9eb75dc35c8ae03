"""System checks of a step: its functions can be called as the engine calls them, and its policy can be kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from django.core.checks import Error, Warning
from pydantic import BaseModel

from workflows.charges import charges_the_patient
from workflows.definition import Step, WorkflowDefinition
from workflows.spelling import did_you_mean, misspelt

# A fault of a step: the severity, the number of the check, the rest of a sentence about the step, and a hint.
Faults = Iterator[tuple[type[Error] | type[Warning], str, str, str]]


def faults(step: Step, definition: WorkflowDefinition) -> Faults:
    """Yield what is wrong with one step of this definition."""
    for check in (
        *(_check_functions, _check_best_effort, _check_policy, _check_repeats, _check_order),
        *(_check_returns, _check_needs),
    ):
        yield from check(step, definition)


_STEP = {"workflow": None, "context": None}
_ASKED = {**_STEP, "effect": None}


def _check_functions(step: Step, definition: WorkflowDefinition) -> Faults:
    """The step, its undo and its lookups are plain functions that take what the engine passes."""
    if step.name == "<lambda>":
        hint = "Write def, or Step(..., name='charge_card'): a step is known by its name, as long as there are rows."
        yield Warning, "W044", "is a lambda, which has no name of its own.", hint
    yield from _check_function("", step.function, _STEP)
    for what in ("undo", "lookup", "undo_lookup"):
        if function := getattr(step, what):
            yield from _check_function(f"an {what}" if what[0] == "u" else f"a {what}", function, _ASKED)


def _check_function(what: str, function: Any, passed: Mapping[str, None]) -> Faults:
    where = f"has {what} that " if what else ""
    takes = f"Write def {_name(function)}(*, {', '.join(passed)})"
    if fault := call_fault(function, **passed):
        yield Error, "E040", f"{where}cannot be called by the engine: {fault}.", f"{takes}."
        return
    if kind := _not_plain(function):
        hint = f"{takes}, and call async code in it by asgiref.sync.async_to_sync."
        yield Error, "E041", f"{where}is {kind}: the engine would call it, and nothing of it would run.", hint
        return
    if wrong := ", ".join(sorted(_no_results(_return_type(function)))):
        hint = "It returns a dict of results, {} if it has none, or None if it did not apply: -> dict[str, str] | None."
        yield Warning, "W042", f"{where}is annotated to return {wrong}.", hint


def _name(function: Any) -> str:
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() else "step"


def call_fault(function: Any, *positional: None, **passed: None) -> str:
    """Why `function` cannot be called with these arguments; empty if it can, or if its signature is not known."""
    if not callable(function):
        return f"it is of type {type(function).__name__}"
    try:
        signature = inspect.signature(function)
    except ValueError:  # a function in C that tells no signature
        return ""
    try:
        signature.bind(*positional, **passed)
    except TypeError:
        return f"it takes {signature}"
    return ""


def _not_plain(function: Any) -> str:
    """What kind of function it is, if calling it runs nothing of it; else empty. Objects are known by `__call__`."""
    for each in (function, getattr(function, "func", None), getattr(function, "__call__", None)):  # noqa: B004 (its code)
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            return "async"
        if inspect.isgeneratorfunction(each):
            return "a generator"
    return ""


def _return_type(function: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(function).get("return", Any)
    except Exception:  # a name that only type checkers import
        return Any


def _no_results(kind: Any) -> Iterator[str]:
    """The types in an annotation that are no mapping and not None. What cannot be judged passes."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _no_results(get_args(kind)[0])
    elif origin in (Union, UnionType):
        for each in get_args(kind):
            yield from _no_results(each)
    else:
        of = origin or kind
        # A model is turned into a dict of its fields.
        if isinstance(of, type) and of not in (object, Any) and not issubclass(of, Mapping | NoneType | BaseModel):
            yield of.__name__


def _check_repeats(step: Step, definition: WorkflowDefinition) -> Faults:
    """No step is both once and repeatable; a best-effort step that is not the last says which of the two it is."""
    if step.once and step.repeatable:
        message = "is once and repeatable: its call is not made again, and may be made again."
        yield Error, "E009", message, "Leave out repeatable=True: what is once is never repeated without need."
    # A later step may fail or wait; then this step has run twice even in a workflow that completes.
    if step.best_effort and not step.once and not step.repeatable and step is not definition.steps[-1]:
        message = "is best effort and stands before others: whenever one of them fails or waits, it runs again."
        name = step.name
        hint = (
            f"Make it Step({name}, best_effort=True, once=True, key_ttl=timedelta(days=1), returns=()), with what its "
            f"service honours and it returns; or say that this does no harm: Step({name}, best_effort=True, "
            "repeatable=True)."
        )
        yield Warning, "W005", message, hint


def _check_order(step: Step, definition: WorkflowDefinition) -> Faults:
    """What cannot be undone comes after all that can, or says that it may stay, which a charge may not."""
    if step.stays and (step.undo or not step.once):
        message = "says stays=True, and has an undo, or is not once."
        yield Error, "E057", message, "Leave out stays=True: it is for a step that is once and that nothing undoes."
    elif step.stays and charges_the_patient(definition, step.name):
        message = "charges, and says stays=True: money that stays taken when the workflow fails does harm."
        yield Warning, "W056", message, "Give it an undo that refunds it; or leave out stays=True, and charge last."
    later = definition.steps[definition.steps.index(step) + 1 :]
    undone = [each.name for each in later if each.undo]
    if undone and step.once and not step.undo and not step.stays:
        message = f"is once, and has no undo: if {undone[-1]!r} or a step before that fails, its call is left behind."
        hint = (
            f"Move it behind {undone[-1]!r}, or give it an undo; or say that its call does no harm then: "
            f"Step({step.name}, once=True, stays=True)."
        )
        yield Warning, "W056", message, hint


def _check_best_effort(step: Step, definition: WorkflowDefinition) -> Faults:
    """Only a best-effort step may have `parks` or `follow_up`."""
    stated = [name for name, value in (("parks", step.parks), ("follow_up", step.follow_up)) if value]
    if stated and not step.best_effort:
        hint = "Any other step is parked in an outage, and never let go: leave it out, or say best_effort=True."
        yield Error, "E012", f"has {' and '.join(stated)}, and is not best effort.", hint


def _check_policy(step: Step, definition: WorkflowDefinition) -> Faults:
    """A step's call can do what the step's policy promises."""
    if not step.once:
        if step.undo or step.lookup or step.undo_lookup or step.key_ttl is not None:
            message = "has an undo, a lookup or a key_ttl, and is not once."
            yield Error, "E006", message, "Make it Step(..., once=True), or leave them out."
        return
    if step.undo_lookup and not step.undo:
        message = "has an undo_lookup and no undo: nothing would ask it."
        yield Error, "E006", message, "Give it undo=..., or leave it out."
        return
    if step.lookup:
        return
    if step.key_ttl is None:
        message = "is once, and has neither a lookup nor a key_ttl: whenever its answer is lost, a person is asked."
        hint = (
            "Give it lookup=..., which asks the service; or key_ttl=..., if the service honours idempotency keys; or "
            "key_ttl=timedelta(0), if a person is to be asked."
        )
        yield Warning, "W001", message, hint
        return
    if step.undo:
        message = "has an undo and no lookup: before a call in doubt is undone, a person is asked whether it was made."
        hint = "Give it lookup=..., which asks the service. Nothing is repeated in order to be undone."
        yield Warning, "W003", message, hint


def _check_returns(step: Step, definition: WorkflowDefinition) -> Faults:
    """The context has the fields that a step returns, so a person can fill them in."""
    if step.returns is None:
        if step.once:
            message = "is once, and does not say what it returns: a person who is asked about its call writes JSON."
            hint = "Name the context's fields in its result, Step(..., returns=('charge_id',)); () if it returns {}."
            yield Warning, "W010", message, hint
        return
    fields, name = definition.context_class.model_fields, definition.context_class.__name__
    if unknown := [field for field in step.returns if field not in fields]:
        hint = f"Name fields of the context.{did_you_mean(unknown[0], fields)}"
        yield Error, "E010", f"returns {', '.join(unknown)}: not declared in {name}.", hint
    if hidden := [field for field in step.returns if field in fields and fields[field].exclude]:
        hint = "A secret has no place on the ledger: let a step that is not once get it."
        yield Error, "E011", f"returns {', '.join(hidden)}, which {name} keeps out of every copy.", hint


def _check_needs(step: Step, definition: WorkflowDefinition) -> Faults:
    """What a step needs is a service, which only the calls name, or a later step."""
    names = [each.name for each in definition.steps]
    later = names[names.index(step.name) + 1 :]
    for needed in step.needs:
        if needed in names and needed not in later:
            hint = "Leave it out: the steps before have run when this one starts."
            yield Warning, "W046", f"needs {needed!r}, which is no later step.", hint
        elif meant := misspelt([needed], later):
            hint = f"Did you mean {meant[needed]!r}? If it is a service, give the step another name."
            yield Warning, "W046", f"needs {needed!r}, which is almost the name of a later step.", hint
