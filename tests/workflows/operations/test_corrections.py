"""Who may correct what a failed workflow was sent, and what is refused.

What Python refuses of the two people, the database refuses, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, transaction
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds
from tests.workflows.conftest import World
from tests.workflows.operations.correcting import (
    CORRECTABLE,
    OPTIONS,
    RIGHT,
    TYPO,
    Sent,
    approve,
    ask,
    check,
    person,
    reread,
)
from workflows import operations
from workflows.correctable import Correctable
from workflows.definition import WorkflowDefinition
from workflows.errors import NotAllowed
from workflows.features.corrections import operations as corrections
from workflows.models import Effect, Workflow


@pytest.fixture
def asker(db: None) -> User:
    return person("bob")


@pytest.fixture
def approver(db: None) -> User:
    return person("carol")


@pytest.fixture(autouse=True)
def known(world: World, engine: None) -> None:
    define([world.step("register", undo=None), world.step("charge"), check], correctable=CORRECTABLE, **OPTIONS)


def failed(**more: Any) -> Workflow:
    """One that failed for its typo, after its account was made."""
    row = Workflow.objects.create(
        workflow_type="test",
        idempotency_key=uuid4(),
        payload={"patient": {"email": TYPO}, "program": "body", **more},
        status="FAILED",
        completed_at=timezone.now(),
    )
    row.effects.create(step="register", state="done", result={}, attempt=1, idempotency_key="r")
    return row


# --- What is refused -----------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"reason": ""}, "Say why"),
    ({"values": {"patient.email": "jane"}}, "String should match"),  # what the first step refuses
    ({"values": {"patient.email": TYPO}}, "It is this already"),
    ({"values": {"count": 5}}, "one of the fields that can be corrected"),
    ({"values": {}}, "one of the fields that can be corrected"),
    ({"values": {"program": "a\0b"}}, "U\\+0000|NUL|character"),  # what PostgreSQL cannot keep
    ({"seen": [1]}, "look at it again"),  # an end that is not the last
]


def test_a_correction_is_not_asked_for_with_what_is_wrong(asker: User) -> None:
    row = failed()
    usual = {"reason": "Ticket 7.", "values": {"patient.email": RIGHT}, "seen": operations.ended_at(row)}
    for said, why in WRONG:
        with pytest.raises(NotAllowed, match=why):
            corrections.ask(row.pk, user=asker, **{**usual, **said})


def test_only_what_has_failed_is_corrected_and_not_while_a_call_is_unclear(asker: User) -> None:
    row = failed()
    Effect.objects.update(state="unknown", result=None)
    with pytest.raises(NotAllowed, match="It is unclear whether “Register” was done"):
        ask(row, asker)
    Workflow.objects.update(status="PENDING", completed_at=None)
    with pytest.raises(NotAllowed, match="Only a failed workflow of a type with fields for it can be corrected"):
        ask(row, asker)


def test_a_best_effort_call_that_stays_unclear_for_good_prevents_none(world: World, asker: User) -> None:
    steps = [world.step("register", undo=None, best_effort=True), world.step("charge"), check]
    define(steps, correctable=CORRECTABLE, **OPTIONS)
    row = failed()
    Effect.objects.update(state="unknown", result=None)
    ask(row, asker)


def test_other_faults_of_what_was_sent_are_said_without_their_values(asker: User) -> None:
    row = failed(count="canary")
    with pytest.raises(NotAllowed, match="other faults") as refused:
        ask(row, asker)
    assert "canary" not in str(refused.value)


def test_a_second_one_is_not_asked_for_beside_the_first(asker: User, approver: User) -> None:
    row = failed()
    ask(row, asker)
    with pytest.raises(NotAllowed, match="bob has asked for a correction already"):
        ask(row, approver)


def test_the_second_person_types_the_same_value(asker: User, approver: User) -> None:
    asked = ask(failed(), asker)
    with pytest.raises(NotAllowed, match="What you have typed is not what bob has asked for"):
        approve(asked, approver, **{"patient.email": "jane@example.org"})
    asked.refresh_from_db()
    assert asked.state == "asked"


def test_to_charge_again_what_was_refunded_takes_that_right(asker: User, approver: User, world: World) -> None:
    row = failed()
    row.effects.create(step="charge", state="undone", result={"id": "ch_1"}, attempt=1, idempotency_key="k")
    define([world.step("register", undo=None), world.step("charge"), check], correctable=CORRECTABLE, **OPTIONS)
    asked = ask(row, asker)
    approver.user_permissions.remove(Permission.objects.get(codename="cancel_paid_workflow"))
    with pytest.raises(NotAllowed, match="Its charge was refunded or retracted, and a retry charges again"):
        approve(asked, User.objects.get(pk=approver.pk))


# --- Two people ----------------------------------------------------------------------------------


def _no_permission(user: User) -> None:
    user.user_permissions.clear()


def _superuser(user: User) -> None:
    user.user_permissions.clear()
    User.objects.filter(pk=user.pk).update(is_superuser=True)


def _set(**fields: Any) -> Callable[[User], None]:
    return lambda user: User.objects.filter(pk=user.pk).update(**fields)  # type: ignore[return-value]


OWN = _set(email=" BOB@Clinic.Example")
NEITHER = {
    "their own second account": OWN,
    "one without an e-mail address": _set(email=""),
    "one made today": _set(date_joined=timezone.now() - timedelta(hours=23)),
    "a superuser as such": _superuser,
    "one without the permission": _no_permission,
    "one who is not active": _set(is_active=False),
}
APPROVED = """UPDATE workflows_correction
                 SET state = 'approved', proposed = NULL, decided_by_id = %s, decided_at = now() WHERE id = %s"""


def sql(statement: str, *parameters: Any) -> None:
    """As somebody does who has found a way around Python."""
    with transaction.atomic():
        engine.execute(statement, parameters)


@pytest.mark.parametrize("spoil", NEITHER.values(), ids=NEITHER)
def test_neither_person_is(asker: User, approver: User, spoil: Callable[[User], None]) -> None:
    asked = ask(failed(), asker)
    with pytest.raises(NotAllowed, match="You have asked for it yourself"):
        approve(asked, asker)
    with pytest.raises(DatabaseError, match="another person"):
        sql(APPROVED, asker.pk, asked.pk)
    spoil(approver)
    with pytest.raises((NotAllowed, PermissionDenied)):
        approve(asked, User.objects.get(pk=approver.pk))
    with pytest.raises(DatabaseError, match=r"may not approve|another person"):
        sql(APPROVED, approver.pk, asked.pk)
    asked.refresh_from_db()
    assert asked.state == "asked"
    if spoil == OWN:
        return
    spoil(asker)  # nor is the first
    with pytest.raises((NotAllowed, PermissionDenied)):
        ask(failed(), User.objects.get(pk=asker.pk))
    with pytest.raises(DatabaseError, match="may not ask"):
        sql(ASKED, asker.pk)


@pytest.mark.parametrize("why", [why for why, spoil in NEITHER.items() if spoil != OWN])
def test_what_was_asked_by_one_who_may_not_any_more_is_refused_and_not_approved(
    why: str, asker: User, approver: User
) -> None:
    asked = ask(failed(), asker)
    NEITHER[why](asker)
    with pytest.raises(NotAllowed, match="bob, who has asked for it, may not do this any more"):
        approve(asked, approver)
    corrections.close(asked.workflow_id, user=approver, reason="Ticket 8.", seen=[asked.pk])
    asked.refresh_from_db()
    assert asked.state == "refused"


ASKED = """INSERT INTO workflows_correction (workflow_id, of_failure, proposed, told, reason, asked_by_id)
           VALUES (1, now(), '{}', '[]', 'So.', %s)"""
TAMPERED = [
    """INSERT INTO workflows_correction
                  (workflow_id, of_failure, told, reason, asked_by_id, decided_by_id, decided_at, state)
           SELECT 1, now(), '[]', 'So.', asked_by_id, {approver}, now(), 'approved' FROM workflows_correction""",
    "UPDATE workflows_correction SET proposed = '{{}}'",
    APPROVED.replace("SET", "SET workflow_id = -1,").replace("%s", "{}"),
    "UPDATE workflows_correction SET asked_by_id = {approver}, state = 'withdrawn', proposed = NULL",
    "UPDATE workflows_correction SET state = 'refused'",
]


def test_nothing_else_is_made_of_what_was_asked_for(asker: User, approver: User) -> None:
    asked = ask(failed(), asker)
    for statement in TAMPERED:
        filled = statement.format(approver.pk, asked.pk, approver=approver.pk)
        with pytest.raises(DatabaseError, match=r"asked|decided|correction_emptied") as refused:
            sql(filled)
        assert RIGHT not in str(refused.value) or "correction_emptied" in str(refused.value)


def test_what_is_decided_stays_decided(asker: User, approver: User) -> None:
    asked = ask(failed(), asker)
    corrections.close(asked.workflow_id, user=approver, reason="It is another patient.", seen=[asked.pk])
    with pytest.raises(NotAllowed, match="carol has decided it already: it is refused"):
        approve(asked, approver)
    with pytest.raises(DatabaseError, match="decided once"):
        sql(APPROVED, approver.pk, asked.pk)


@pytest.mark.parametrize(("who", "state"), [("bob", "withdrawn"), ("carol", "refused")])
def test_it_is_withdrawn_or_refused_and_its_values_go(asker: User, approver: User, who: str, state: str) -> None:
    row = failed()
    asked = ask(row, asker)
    by = User.objects.get(username=who)
    corrections.close(row.pk, user=by, reason="It is another patient.", seen=[asked.pk])
    asked.refresh_from_db()
    assert (asked.state, asked.proposed, asked.decided_by) == (state, None, by)
    assert (reread(row).status, kinds(row)[-1]) == ("FAILED", f"correction_{state}")
    ask(row, asker)  # once more


def test_it_is_of_one_failure(asker: User, approver: User) -> None:
    """During a deploy a release may retry that does not know of corrections."""
    row = failed()
    asked = ask(row, asker)
    Workflow.objects.filter(pk=row.pk).update(completed_at=timezone.now())
    with pytest.raises(NotAllowed, match="The workflow has changed since this was asked for"):
        approve(asked, approver)


# --- What a definition may say --------------------------------------------------------------------

UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "no field of the model": ({"patient.age": ()}, "has no field 'patient.age'"),
    "a secret": ({"password": ()}, "a secret"),
    "an object": ({"patient": ()}, "no single value"),
    "a list": ({"tags": ()}, "no single value"),
    "what is charged": ({"amount": ()}, "it says what is charged"),
    "an amount of the business key": ({"count": ()}, "an amount of the business key"),
    "what signals find it by": ({"program": ()}, "signals find the workflow by it"),
    "a step that is not once": ({"patient.phone": ("check",)}, "no step that is once"),
}


@pytest.mark.parametrize(("fields", "why"), UNFIT.values(), ids=UNFIT)
def test_a_definition_does_not_offer(fields: dict[str, Any], why: str) -> None:
    options = {**OPTIONS, "business_key": ("patient.email", "count"), "linking_id": "program"}
    with pytest.raises(ValueError, match=re.escape(why)):
        WorkflowDefinition(
            name="test", steps=[check], context_class=engine.Context, correctable=Correctable(Sent, fields), **options
        )
