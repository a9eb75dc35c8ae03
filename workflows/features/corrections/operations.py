"""CORRECT AND RETRY: two people change fields of a failed workflow's payload, and it starts again.

One asks and another approves; one transaction then changes the payload and reopens the workflow. Somebody must have
given both the permission; their accounts must be a day old, and have different e-mail addresses. A trigger in the
database checks this, too. The second person types the new values again, from their own knowledge: from masked values
they could check nothing.

Only a FAILED workflow can be corrected. A waiting or parked one has asked questions and made calls with the old values,
and a worker may have it in hand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import Permission
from django.contrib.postgres.fields import ArrayField
from django.db.models import Func, JSONField, Q, TextField, Value
from django.utils import timezone
from pydantic import ValidationError, create_model
from pydantic_core import to_json, to_jsonable_python

from workflows.correctable import Correctable
from workflows.definition import WorkflowDefinition, definitions, titled_step, value_at
from workflows.effects.reconcile import PASSED_OVER, passed_over
from workflows.effects.rows import begin_again
from workflows.errors import NotAllowed
from workflows.features.business_key import duplicates
from workflows.models import Correction, Effect, Event, State, Workflow, correction
from workflows.models.clock import ClockTimestamp
from workflows.operations import two_people
from workflows.operations.guards import (
    CORRECT,
    lock_workflow,
    record_event,
    require,
    require_reason,
    short_transaction,
    stated,
    why_not_second,
)
from workflows.operations.retrying import ended_at, start_again, why_not_charge_again
from workflows.postgres.jsonb import Unstorable, ensure_storable
from workflows.postgres.statements import execute, fetch_one
from workflows.redaction import MASK
from workflows.sealing import payloads
from workflows.search import rows as search_rows
from workflows.signals.waking import Slice
from workflows.state import history
from workflows.telling.words import label_of_field

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# The minimum age of both users' accounts: nobody makes a second account just for this.
YOUNGEST = timedelta(hours=24)
# An undecided correction lapses after this time, because its new values are stored in clear.
LAPSES = timedelta(days=30)
CHANGED = "The workflow has changed since this was asked for: ask for it again if it is still needed."

Values = Mapping[str, Any]


def ask(workflow_id: int, *, user: User, reason: str, values: Values, seen: list[int]) -> str:
    """Ask for new values (by field) of a FAILED workflow; return a sentence about what happens next.

    `seen` is the end that the user was shown (`ended_at`).
    """
    require(user, CORRECT)
    require_reason(reason, "a correction")
    with short_transaction():
        workflow, _ = lock_workflow(workflow_id)
        definition = _require_correctable(workflow, user)
        if seen != ended_at(workflow):
            raise NotAllowed("It was retried since you looked, and has ended again: look at it again.")
        proposed = {field: to_jsonable_python(value) for field, value in values.items()}
        if wrong := " ".join(faults(workflow, proposed).values()):
            raise NotAllowed(wrong)
        told = [
            {
                "field": field,
                "label": label_of_field(definition, field),
                "was": masked(definition, field, value_at(workflow.payload, field)),
                "is": masked(definition, field, value),
            }
            for field, value in proposed.items()
        ]
        assert workflow.completed_at is not None  # it has failed
        Correction.objects.create(
            workflow=workflow,
            of_failure=workflow.completed_at,
            proposed=proposed,
            told=told,
            reason=stated(reason),
            asked_by=user,
        )
        record_event(workflow_id, Event.Kind.CORRECTION_ASKED, user, reason=reason, corrected=told)
    return "It is asked for: another user has to approve it."


def approve(workflow_id: int, *, user: User, values: Values, seen: list[int], reason: str = "") -> None:
    """Correct the payload and start the workflow again. `values` are the new ones, as this user typed them."""
    require(user, CORRECT)
    with short_transaction():
        workflow, _ = lock_workflow(workflow_id)
        asked = _open(workflow_id, seen)
        if refusal := why_not_approve(asked, user):
            raise NotAllowed(refusal)
        if asked.of_failure != workflow.completed_at:
            raise NotAllowed(CHANGED)
        definition = _require_correctable(workflow, user, is_asked=True)
        assert asked.proposed is not None  # a constraint
        if {field: to_jsonable_python(value) for field, value in values.items()} != asked.proposed:
            raise NotAllowed(
                f"What you have typed is not what {asked.asked_by.get_username()} has asked for. Find out who "
                "is mistaken: approve it with the right value, or do not correct it."
            )
        if refusal := _why_not_with(workflow, asked.proposed):
            raise NotAllowed(refusal)
        if faults(workflow, asked.proposed):
            raise NotAllowed("This release does not take these values: refuse it, and ask for others.")
        fields = list(asked.proposed)
        _change(workflow, definition, asked.proposed)
        _decide(asked, Correction.State.APPROVED, user)
        begin_again(workflow, _passing_on(definition, fields))
        start_again(workflow)
        told = {"corrected": asked.told, "asked_by": asked.asked_by.get_username(), "note": stated(reason)}
        record_event(workflow_id, Event.Kind.CORRECTED, user, reason=asked.reason, **told)


def close(workflow_id: int, *, user: User, reason: str, seen: list[int]) -> str:
    """Refuse a colleague's correction, or withdraw one's own; return which, as a sentence."""
    require(user, CORRECT)
    require_reason(reason, "that")
    with short_transaction():
        asked = _open(workflow_id, seen)
        is_own = asked.asked_by_id == user.pk
        _decide(asked, Correction.State.WITHDRAWN if is_own else Correction.State.REFUSED, user)
        kind = Event.Kind.CORRECTION_WITHDRAWN if is_own else Event.Kind.CORRECTION_REFUSED
        record_event(workflow_id, kind, user, reason=reason, corrected=asked.told)
    return f"It is {'withdrawn' if is_own else 'refused'}: the workflow stays as it is."


def _open(workflow_id: int, seen: list[int]) -> Correction:
    """The correction that the user was shown, locked until the transaction ends. NotAllowed unless it is open."""
    rows = Correction.objects.select_for_update(of=("self",)).select_related("asked_by")
    found = rows.filter(workflow=workflow_id, pk__in=seen).first()
    if found is None:
        raise NotAllowed("There is no such correction.")
    if found.state == Correction.State.STALE:
        raise NotAllowed(CHANGED)
    if found.state == Correction.State.LAPSED:
        raise NotAllowed(f"Nobody has decided it in {LAPSES.days} days: ask for it again if it is still needed.")
    if found.state != Correction.State.ASKED:
        by = found.decided_by.get_username() if found.decided_by else "Somebody"
        raise NotAllowed(f"{by} has decided it already: it is {found.get_state_display().lower()}.")
    return found


def _decide(asked: Correction, state: Correction.State, user: User) -> None:
    Correction.objects.filter(pk=asked.pk).update(
        state=state, proposed=None, decided_by=user, decided_at=ClockTimestamp()
    )


def lapse(after: int = 0) -> Slice:
    """Maintenance: end corrections that nobody has decided in time, and delete their new values."""
    old = Correction.objects.open().filter(asked_at__lt=ClockTimestamp() - LAPSES).select_related("asked_by")
    old = old.defer("asked_by__password")  # workers may not read it: see `management.roles`
    lapsed = list(old.select_for_update(of=("self",)).order_by("asked_at")[:100])
    for each in lapsed:
        Correction.objects.filter(pk=each.pk).update(
            state=Correction.State.LAPSED, proposed=None, decided_at=ClockTimestamp()
        )
        # Recorded with an actor, so that the audit shows it. No user can have this name.
        told = {"corrected": each.told, "asked_by": each.asked_by.get_username(), "reason": each.reason}
        history.record(each.workflow_id, Event.Kind.CORRECTION_LAPSED, actor="a worker", **told)
    return Slice(len(lapsed))


def _change(workflow: Workflow, definition: WorkflowDefinition, proposed: Values) -> None:
    """Change only these fields of the payload, in SQL: Python would write other numbers differently."""
    # Secret fields are not copied, so that they are deleted in one table only.
    secrets = [field.split(".") for field in definition.secret_fields]
    execute(
        f"""INSERT INTO workflows_originalpayload (workflow_id, payload)
            SELECT id, payload{" #- %s::text[]" * len(secrets)} FROM workflows_workflow WHERE id = %s
            ON CONFLICT DO NOTHING""",  # noqa: S608 (ours)
        [*secrets, workflow.pk],
    )
    for field, value in proposed.items():
        path = Value(field.split("."), ArrayField(TextField()))
        changed = Func("payload", path, Value(value, JSONField()), function="jsonb_set")
        Workflow.objects.filter(pk=workflow.pk).update(payload=changed)
    workflow.refresh_from_db(fields=["payload"])
    search_rows.add(workflow.pk, definition, workflow.payload)


_UNCLEAR = f"""
    SELECT e.step FROM workflows_effect e JOIN workflows_workflow w ON w.id = e.workflow_id
     WHERE w.id = %(id)s AND NOT e.undo
       AND (e.state = 'kept' AND e.result IS NULL OR e.state IN ('intent', 'unknown') AND NOT {PASSED_OVER})
     ORDER BY e.id LIMIT 1"""  # noqa: S608 (ours)


# --- Whether it can be -----------------------------------------------------------------------------


def open_correction(workflow_id: int) -> Correction | None:
    """The correction that somebody has asked for and nobody has decided."""
    found = Correction.objects.open().filter(workflow=workflow_id)
    return found.select_related("asked_by").first()


def correctable_of(workflow: Workflow) -> Correctable | None:
    """What may be corrected of a workflow; None unless it has failed and its definition names fields."""
    definition = definitions().get(workflow.workflow_type)
    has_failed = workflow.status == Workflow.Status.FAILED and workflow.cancelled_at is None
    return definition.correctable if definition and has_failed else None


def _require_correctable(workflow: Workflow, user: User, *, is_asked: bool = False) -> WorkflowDefinition:
    if correctable_of(workflow) is None:
        is_now = State(workflow.state).label.lower()
        raise NotAllowed(f"Only a failed workflow of a type with fields for it can be corrected; this one is {is_now}.")
    if refusal := why_not_correct(workflow, user, is_asked=is_asked):
        raise NotAllowed(refusal)
    return definitions()[workflow.workflow_type]


def why_not_correct(workflow: Workflow, user: User, *, is_asked: bool = False) -> str:
    """Why `user` may not ask for a correction; empty if they may. `is_asked`: the correction exists already."""
    if refusal := _why_not_this_user(user) or why_not_charge_again(workflow.pk, user):
        return refusal
    if not is_asked and (asked := open_correction(workflow.pk)):
        name = asked.asked_by.get_username()
        return f"{name} has asked for a correction already: approve the correction, or do not correct it."
    return why_not_now(workflow)


def why_not_now(workflow: Workflow) -> str:
    """Why nobody may ask for a correction of a workflow as it stands; empty if somebody may."""
    if by_hand := two_people.said_by_hand(workflow.pk):
        return by_hand
    if unclear := _unclear(workflow):
        return f"It is unclear whether {unclear} was done: retry it first. A retry finds it out, or asks a person."
    return _why_not_beside_another(workflow, workflow.payload)


def _why_not_beside_another(workflow: Workflow, payload: Values) -> str:
    """Why a workflow may not run with this payload because of another one; empty if it may.

    Callers check the payload as sent, so that a patient who sent it again is not charged twice, and the proposed one.
    Two people whose addresses were swapped can both be corrected.
    """
    if other := duplicates.in_place_of(workflow, payload):
        return (
            f"Workflow {other} does, or has done, the same for the same person. If they are not the same, retry this "
            "one first: it ends as a duplicate, and you can then say that it is not one."
        )
    return ""


def why_not_approve(asked: Correction, user: User) -> str:
    """Why `user` may not approve it; empty if they may."""
    if refusal := why_not_second(asked.asked_by, user, asked.asked_at) or _why_not_this_user(user):
        return refusal
    if fetch_one("SELECT workflows_may_correct(%s)", [asked.asked_by_id]) != (True,):  # the database refuses it, too
        name = asked.asked_by.get_username()
        return f"{name}, who has asked for it, may not do this any more: refuse it, and ask for it again."
    return ""


def _why_not_this_user(user: User) -> str:
    given = Permission.objects.filter(content_type__app_label="workflows", codename=correction.CORRECT)
    if not given.filter(Q(user=user) | Q(group__user=user)).exists():
        return "A superuser may only with this permission of their own, or of a group."
    if not user.email.strip():
        return "Your account has no e-mail address, by which two people are told apart."
    if user.date_joined > timezone.now() - YOUNGEST:
        return "Your account is less than a day old: ask a colleague."
    return ""


def _unclear(workflow: Workflow) -> str:
    """The title of the step with a call that may or may not have happened; empty if there is none."""
    found = fetch_one(_UNCLEAR, {"id": workflow.pk, **passed_over()})
    return titled_step(workflow.workflow_type, found[0]) if found else ""


def as_read(definition: WorkflowDefinition, field: str, value: Any) -> Any:
    """A value as the model takes it. What Find takes for the field, `(555) 010-2323` for a phone, is taken, too."""
    key = next((each for each in definition.search_keys.values() if each.field == field), None)
    info = definition.correctable.find(field) if definition.correctable else None
    if key is None or info is None or info.annotation is None or not isinstance(value, str):
        return value
    model = create_model("Field", value=(info.annotation, info))
    for reading in (value, *(sign + each for each in key.read(value) for sign in ("", "+"))):
        with suppress(ValidationError):
            model(value=reading)
            return reading
    return value


def faults(workflow: Workflow, values: Values) -> dict[str, str]:
    """The faults of new values, by field; under "" those of no field. The first step's model checks them."""
    correctable = correctable_of(workflow)
    if correctable is None or not values or set(values) - set(correctable.fields):
        return {"": "Change one of the fields that can be corrected."}
    if same := [field for field, value in values.items() if value_at(workflow.payload, field) == value]:
        return dict.fromkeys(same, "It is this already.")
    payload = deepcopy(payloads.without_secrets(definitions()[workflow.workflow_type], workflow.payload))
    if homeless := _set(payload, values):
        return {homeless: "What was sent has no place for it."}
    try:
        ensure_storable(dict(values))
        correctable.model.model_validate_json(to_json(payload))
    except Unstorable as error:
        return {"": str(error)}
    except ValidationError as error:
        return _in_words(error, values)
    refusal = _why_not_with(workflow, values)
    return {"": refusal} if refusal else {}


def _why_not_with(workflow: Workflow, proposed: Values) -> str:
    """Why a workflow may not run with these values because of another one; empty if it may."""
    payload = deepcopy(workflow.payload)
    _set(payload, proposed)
    return _why_not_beside_another(workflow, payload)


def _set(payload: dict[str, Any], values: Values) -> str:
    """Set these fields of a payload. Returns the first field whose parent is missing; empty if all are set."""
    for field, value in values.items():
        *parents, name = field.split(".")
        inside = value_at(payload, ".".join(parents)) if parents else payload
        if not isinstance(inside, dict):
            return field
        inside[name] = value
    return ""


def _in_words(error: ValidationError, values: Values) -> dict[str, str]:
    found: dict[str, str] = {}
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(map(str, fault["loc"]))
        # The location in a union begins with the kind.
        field = next((each for each in values if f".{place}".endswith(f".{each}")), "")
        said = re.sub("^(Value error|Assertion failed), ", "", fault["msg"])
        own = f"{said[:1].upper()}{said[1:]}".rstrip(".") + "."
        found.setdefault(field, own if field else "What was sent has other faults, too, which this does not mend.")
    return found


def _passing_on(definition: WorkflowDefinition, fields: Collection[str]) -> set[str]:
    """All names of the steps that pass on one of these fields."""
    assert definition.correctable is not None
    steps = definition.correctable.passed_on_by(fields)
    return {name for step in steps for name in (step, *definition.find_or_removed_step(step).names)}


def done_with_the_old(workflow: Workflow, fields: Collection[str]) -> dict[str, list[str]]:
    """The steps whose calls stand and passed on some of these fields, with those fields, both by their labels."""
    definition = definitions()[workflow.workflow_type]
    stands = Effect.objects.filter(workflow=workflow.pk, undo=False, state__in=[Effect.State.DONE, Effect.State.KEPT])
    steps = dict.fromkeys(stands.order_by("call_number").values_list("step", flat=True))
    passed_on = {step: [each for each in fields if step in _passing_on(definition, [each])] for step in steps}
    return {
        titled_step(workflow.workflow_type, step): [label_of_field(definition, each) for each in found]
        for step, found in passed_on.items()
        if found
    }


def masked(definition: WorkflowDefinition, field: str, value: Any) -> str:
    """The part of a value that staff may see."""
    if value in (None, ""):
        return "nothing"
    if not isinstance(value, str | int | float):
        return MASK
    show = next((each.show for each in definition.wording.caller if each.path == field), None)
    shown = str(value) if field in definition.public_fields else show(value) if show else MASK
    return shown[:100]


def was_corrected(workflow: Workflow) -> list[Correction]:
    """The approved corrections of a workflow, oldest first."""
    made = Correction.objects.filter(workflow=workflow.pk, state=Correction.State.APPROVED)
    return list(made.order_by("pk"))
