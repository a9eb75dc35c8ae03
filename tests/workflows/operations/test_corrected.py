"""Two people correct what a failed workflow was sent, and it starts again: what changes with it, and what does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from tests import engine
from tests.concurrency.rivals import Rivals
from tests.engine import define, do_chore, elsewhere, kinds, submit, work, worker
from tests.postgres import without_triggers
from tests.workflows.conftest import World
from tests.workflows.operations.correcting import CORRECTABLE, OPTIONS, RIGHT, TYPO, approve, ask, check, person, reread
from tests.workflows.operations.people import held
from tests.workflows.undoing import to_rest
from workflows import operations
from workflows.definition import Step, definitions
from workflows.effects import key_for
from workflows.errors import NotAllowed, StepError
from workflows.features.corrections import operations as corrections
from workflows.intake.submissions import KeyReused, enter
from workflows.models import Correction, Effect, Event, ManualTask, OriginalPayload, SearchKeyHash, Workflow
from workflows.postgres.jsonb import parse
from workflows.search import search_keys

pytestmark = engine.ENGINE


@pytest.fixture
def asker(transactional_db: None) -> User:
    return person("bob")


@pytest.fixture
def approver(transactional_db: None) -> User:
    return person("carol")


@pytest.fixture(autouse=True)
def known(world: World, engine: None) -> None:
    define([world.step("register", undo=None), check], correctable=CORRECTABLE, **OPTIONS)


def failed(**more: Any) -> Workflow:
    """One that failed for its typo, after its account was made."""
    return to_rest(submit({"patient": {"email": TYPO}, "program": "body", **more}))


# --- What becomes of it --------------------------------------------------------------------------


def test_it_starts_again_from_step_1_with_the_new_value_and_is_found_by_both(asker: User, approver: User) -> None:
    """The history has both values masked, and nothing else keeps the new one."""
    row, key = failed(), search_keys.keys()[0]
    SearchKeyHash.objects.create(hash=key.hash("email", TYPO), workflow_id=row.pk, key_id=key.id)
    asked = ask(row, asker)
    assert reread(row).payload["patient"]["email"] == TYPO
    approve(asked, approver)
    told = [{"field": "patient.email", "label": "E-mail", "was": "•••@exmaple.com", "is": "•••@example.com"}]
    event = Event.objects.get(kind="corrected")
    assert (event.actor, event.detail["asked_by"], event.detail["corrected"]) == ("carol", "bob", told)
    asked.refresh_from_db()
    assert (asked.state, asked.proposed, asked.told) == ("approved", None, told)
    found = SearchKeyHash.objects.values_list("hash", "workflow_id")
    assert {(bytes(hash_), pk) for hash_, pk in found} == {(key.hash("email", each), row.pk) for each in (TYPO, RIGHT)}
    row = work(row)
    assert (row.status, row.payload["patient"]["email"]) == ("COMPLETE", RIGHT)
    assert kinds(row)[-3:] == ["correction_asked", "corrected", "completed"]


def test_the_submission_that_is_sent_again_is_still_a_replay(asker: User, approver: User) -> None:
    key, definition = uuid4(), definitions()["test"]
    text = b'{"patient": {"email": "%s"}, "password": "hunter2", "count": 1, "weight": 1.10000000000000000000001}'
    first, other = parse(text % TYPO.encode()), parse(text % RIGHT.encode())
    pk = enter(definition, idempotency_key=key, payload=first, submitted_by="web").id
    row = to_rest(Workflow.objects.get(pk=pk))
    approve(ask(row, asker), approver)
    again = enter(definition, idempotency_key=key, payload=first, submitted_by="web")
    assert (again.id, again.replayed) == (pk, True)
    with pytest.raises(KeyReused):
        enter(definition, idempotency_key=key, payload=other, submitted_by="web")
    assert "password" not in OriginalPayload.objects.get().payload  # it stays sealed in the row, and is emptied there
    row = to_rest(reread(row))  # and all digits of the rest are as they were sent
    assert Workflow.objects.extra(where=["payload->>'weight' = '1.10000000000000000000001'"]).get() == row


def test_what_was_done_stays_done_and_what_was_refused_is_called_under_a_new_key(
    world: World, asker: User, approver: User
) -> None:
    keys: list[str] = []

    def register(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        keys.append(key_for(workflow, "register"))
        if workflow.payload["patient"]["email"] == TYPO:
            raise StepError("It is not an address.", code="refused")
        return {}

    define([world.step("greet", undo=None), Step(register, once=True)], correctable=CORRECTABLE, **OPTIONS)
    row = failed()
    approve(ask(row, asker), approver)
    assert to_rest(reread(row)).status == "COMPLETE"
    assert world.log == ["greet"]
    assert keys == [f"{row.key}:register", f"{row.key}:register:2"]


def test_who_asks_reads_which_calls_have_the_old_value_and_keep_it() -> None:
    row = failed()
    assert corrections.done_with_the_old(row, ["patient.email", "patient.phone"]) == {"“Register”": ["E-mail"]}
    assert corrections.done_with_the_old(row, ["patient.phone"]) == {}


# --- Duplicates ----------------------------------------------------------------------------------


def test_a_correction_to_what_another_has_done_meanwhile_ends_as_its_duplicate(asker: User, approver: User) -> None:
    row = failed()
    approve(ask(row, asker), approver)
    Workflow.objects.filter(pk=row.pk).update(invisible_until=timezone.now() + timedelta(hours=1))
    first, row = to_rest(submit({"patient": {"email": RIGHT}, "program": "body"})), to_rest(row)
    assert (row.status, row.last_error_code) == ("FAILED", "duplicate_of")
    assert Event.objects.get(workflow=row, kind="duplicate").detail["first"] == first.pk


def test_what_is_sent_once_more_with_the_typo_is_asked_about(asker: User, approver: User) -> None:
    """The patient has sent the same form again, or it is somebody whose address that is."""
    row = failed()
    approve(ask(row, asker), approver)
    Workflow.objects.filter(pk=row.pk).update(invisible_until=timezone.now() + timedelta(hours=1))
    again = work(submit({"patient": {"email": TYPO}, "program": "body"}))
    (asked,) = ManualTask.objects.filter(workflow=again)
    assert asked.task_type == "possible_duplicate"
    assert dict(asked.facts)["Corrected"].startswith(f"Workflow {row.pk} was corrected")


@pytest.mark.parametrize("same_person", [("name", "born"), ()])
def test_two_people_whose_addresses_were_swapped_are_both_corrected(
    asker: User, approver: User, world: World, same_person: tuple[str, ...]
) -> None:
    """Also with a charge that stands. Without `same_person` a worker asks about each."""

    def refuse(*, workflow: Workflow, context: Any) -> None:
        if workflow.pk not in right:
            raise StepError("It is somebody else's.", code="refused")

    right: set[int] = set()
    steps = [world.step("register", undo=None), world.step("charge"), refuse]
    define(steps, correctable=CORRECTABLE, same_person=same_person, **OPTIONS)
    jane, joan = (
        {"patient": {"email": each}, "program": "body", "name": each[:4], "born": each[:4]}
        for each in (RIGHT, "joan@a.org")
    )
    of_jane = to_rest(submit({**jane, "patient": joan["patient"]}))
    of_joan = to_rest(submit({**joan, "patient": jane["patient"]}))
    Effect.objects.filter(undo=False).update(state="kept", result={"id": "ch_1"})
    right |= {of_jane.pk, of_joan.pk}
    for row, sent in ((of_jane, jane), (of_joan, joan)):
        new = {"patient.email": sent["patient"]["email"]}
        approve(ask(row, asker, **new), approver, **new)
    assert worker().process_next()
    assert worker().process_next()
    assert [reread(each).status for each in (of_jane, of_joan)] == ["COMPLETE" if same_person else "PENDING"] * 2
    assert ManualTask.objects.filter(task_type="possible_duplicate").count() == (0 if same_person else 2)


def test_it_is_refused_if_another_has_done_what_it_would_then_be_for(asker: User) -> None:
    first = to_rest(submit({"patient": {"email": RIGHT}, "program": "body"}))
    row = failed()
    with pytest.raises(NotAllowed, match=f"Workflow {first.pk} does, or has done, the same for the same person"):
        ask(row, asker)


def test_it_is_refused_while_another_has_taken_its_place(asker: User, world: World) -> None:
    row = failed()
    define([world.step("register", undo=None)], correctable=CORRECTABLE, **OPTIONS)
    second = to_rest(submit({"patient": {"email": TYPO}, "program": "body"}))
    assert second.status == "COMPLETE"
    with pytest.raises(NotAllowed, match=f"Workflow {second.pk} does, or has done, the same for the same person"):
        ask(row, asker)


# --- What comes between ------------------------------------------------------------------------------


def test_a_retry_in_between_makes_it_stale(asker: User, approver: User) -> None:
    row = failed()
    asked = ask(row, asker)
    operations.retry(row.pk, user=approver)
    asked.refresh_from_db()
    assert (asked.state, asked.proposed) == ("stale", None)
    to_rest(row)
    with pytest.raises(NotAllowed, match="The workflow has changed since this was asked for"):
        approve(asked, approver)
    assert reread(row).payload["patient"]["email"] == TYPO


def test_what_nobody_decides_lapses_and_its_values_are_deleted(asker: User, approver: User) -> None:
    asked = ask(failed(), asker)
    for more, number in ((timedelta(minutes=1), 0), (-timedelta(minutes=1), 1)):
        with without_triggers():
            Correction.objects.update(asked_at=timezone.now() - corrections.LAPSES + more)
        assert elsewhere(lambda: do_chore("lapse corrections").changed) == number
    asked.refresh_from_db()
    assert (asked.state, asked.proposed) == ("lapsed", None)
    event = Event.objects.exclude(actor="").get(kind="correction_lapsed")  # so it is in the audit
    assert (event.detail["asked_by"], event.detail["corrected"]) == ("bob", asked.told)
    with pytest.raises(NotAllowed, match="Nobody has decided it in 30 days"):
        approve(asked, approver)


def test_a_row_that_somebody_holds_is_refused_without_waiting(asker: User, approver: User) -> None:
    row = failed()
    asked = ask(row, asker)
    with held(row), pytest.raises(NotAllowed, match="It is running right now"):
        approve(asked, approver)
    approve(asked, approver)


def lapse() -> None:
    if not do_chore("lapse corrections").changed:
        raise NotAllowed("It was approved.")


@pytest.mark.parametrize(
    "other", ["approve", "retry", *(pytest.param(each, marks=pytest.mark.slow) for each in ("close", "lapse"))]
)
def test_of_two_at_once_one_decides(asker: User, approver: User, other: str) -> None:
    rivals, dora = Rivals(), person("dora")
    rivals_do: dict[str, Callable[[Correction], Any]] = {
        "approve": lambda asked: approve(asked, dora),
        "close": lambda asked: corrections.close(asked.workflow_id, user=dora, reason="No.", seen=[asked.pk]),
        "retry": lambda asked: operations.retry(asked.workflow_id, user=dora),
        "lapse": lambda asked: lapse(),
    }
    try:
        for _ in range(4):
            row = failed(program=uuid4().hex)
            asked = ask(row, asker)
            with without_triggers():
                Correction.objects.update(asked_at=timezone.now() - corrections.LAPSES)
            results = rivals.race(lambda: approve(asked, approver), lambda: rivals_do[other](asked))  # noqa: B023
            refused = [each for each in results if isinstance(each, NotAllowed)]
            asked.refresh_from_db()
            assert len(refused) == 1, results
            is_changed = reread(row).payload["patient"]["email"] == RIGHT
            assert is_changed == (asked.state == "approved")
            assert kinds(row).count("corrected") == is_changed
            assert kinds(row).count("retried") + kinds(row).count("corrected") <= 1
    finally:
        rivals.close()
