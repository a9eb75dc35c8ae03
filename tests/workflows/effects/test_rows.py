"""What was read of an effect may have changed before it is written."""

import contextlib
from threading import Thread
from time import sleep
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from tests import engine
from tests.engine import again, define, make_due, submit, terminate, work, worker
from tests.workflows.downstream import KEY_TTL, Downstream, call_step, fail, fail_at_first, state
from tests.workflows.undoing import ada, to_rest
from workflows import effects, operations
from workflows.definition import Step
from workflows.effects import rows
from workflows.errors import ClaimLost, RetryableStepError, UnknownOutcome
from workflows.models import Attempt, Effect, Workflow
from workflows.postgres import sqlstates

pytestmark = engine.ENGINE


def telling_late(service: Downstream, sql: str, **policy: Any) -> list[Step]:
    """A list in which, on the second attempt and after its ledger was read, a stopped worker writes what it knows."""

    def tell_late(*, workflow: Workflow, context: Any) -> None:
        if Attempt.objects.filter(workflow=workflow).count() == 2:
            with engine.another_connection() as other:
                other.execute(sql, {"workflow": workflow.pk, "key": f"{workflow.key}:call"})

    return [Step(tell_late), call_step(service, **policy)]


TELL_DONE = """UPDATE workflows_effect SET state = 'done', result = '{"number": 1}' WHERE workflow_id = %(workflow)s"""


BEGIN_LATE = """INSERT INTO workflows_effect (workflow_id, step, state, idempotency_key, attempt)
                SELECT %(workflow)s, 'call', 'intent', %(key)s, 1 WHERE %(workflow)s > 0"""


@pytest.mark.parametrize(
    "error", [UnknownOutcome("no answer"), RetryableStepError("unreachable")], ids=["in doubt", "not done"]
)
def test_a_result_that_is_told_after_the_ledger_was_read_is_not_overwritten(
    service: Downstream, error: BaseException
) -> None:
    service.errors = [error]
    define(telling_late(service, TELL_DONE, key_ttl=KEY_TTL))
    workflow = work(submit())
    make_due(workflow)
    with pytest.raises(ClaimLost, match="written its result since"):
        worker().process_next()
    connections.close_all()
    assert (state(), len(service.calls)) == ("done", 1)
    workflow = again(workflow)
    assert (workflow.status, workflow.context["number"], len(service.calls)) == ("COMPLETE", 1, 1)


def test_a_call_that_was_begun_after_the_ledger_was_read_is_not_started_again(service: Downstream) -> None:
    define([fail_at_first, *telling_late(service, BEGIN_LATE, settle=0)])
    workflow = work(submit())
    make_due(workflow)
    with pytest.raises(ClaimLost, match="written its result since"):
        worker().process_next()
    connections.close_all()
    assert (state(), service.calls) == ("intent", [])
    assert again(workflow).waiting_for.startswith("Unclear call: did “Call” happen?")


def test_a_call_that_is_being_begun_just_then_is_not_started_again_and_the_result_before_it_is_written(
    service: Downstream,
) -> None:
    """The other worker's INTENT is not committed yet: ours waits for it, and the unique key refuses it."""
    with engine.another_connection() as other:

        def begin_elsewhere(*, workflow: Workflow, context: Any) -> dict[str, Any]:
            other.execute("BEGIN")
            other.execute(BEGIN_LATE, {"workflow": workflow.pk, "key": f"{workflow.key}:call"})
            committing.start()
            return {"text": "before"}

        def commit_when_it_waits() -> None:
            engine.with_its_connections(engine.until_blocked)
            other.execute("COMMIT")

        committing = Thread(target=commit_when_it_waits)
        define([Step(begin_elsewhere, once=True, name="before", key_ttl=KEY_TTL), call_step(service, settle=0)])
        workflow, this = submit(), worker()
        with pytest.raises(ClaimLost, match="beginning the same call") as lost:
            this.process_next()
        committing.join()
    assert not sqlstates.is_statement_error(lost.value)  # which the worker would report as a defect
    this.in_hand.close_lost()
    connections.close_all()
    assert service.calls == []
    assert dict(Effect.objects.values_list("step", "state")) == {"before": "done", "call": "intent"}
    assert again(workflow).waiting_for.startswith("Unclear call: did “Call” happen?")


def test_an_undo_that_was_told_after_the_ledger_was_read_is_not_started_again(service: Downstream) -> None:
    service.undo_errors = [UnknownOutcome("no answer")]

    def tell_late(*, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> None:
        """The undo of the step after: it comes first."""
        with engine.another_connection() as other:
            sql = "UPDATE workflows_effect SET state = CASE WHEN undo THEN 'done' ELSE 'undone' END, result = '{}'"
            other.execute(sql + " WHERE step = 'call'")

    later = Step(service.call, once=True, name="later", undo=tell_late)
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    workflow = again(workflow)
    assert (workflow.compensating, service.undone) == (True, [f"{workflow.key}:call:undo"])
    # As if the later one had not been undone yet.
    Effect.objects.create(
        workflow=workflow, step="later", state="done", result={}, has_undo=True, attempt=1, idempotency_key="later"
    )
    define([call_step(service, undo=service.undo), later, fail])
    make_due(workflow)
    with pytest.raises(ClaimLost):
        worker().process_next()
    connections.close_all()
    assert len(service.undone) == 1
    assert again(workflow).status == "FAILED"
    assert len(service.undone) == 1


@pytest.mark.parametrize("alias", ["default", "attempt_log"])
def test_a_late_result_never_lands_on_the_effect_of_another_workflow(alias: str) -> None:
    """After a failover to a server that lacks the last moments, ids are given out again: of rows and of attempts."""
    other = submit()

    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        with engine.another_connection() as another:
            another.execute(
                "UPDATE workflows_effect SET workflow_id = %s, attempt_token = gen_random_uuid()", [other.pk]
            )
        terminate(alias)
        return {"number": 5}

    define([Step(call, once=True)])
    Workflow.objects.filter(pk=other.pk).update(status="COMPLETE")
    submit()
    this = worker()
    with pytest.raises((ClaimLost, Exception)):
        this.process_next()
    this.in_hand.close_lost()
    effect = Effect.objects.get()
    assert (effect.workflow_id, effect.state, effect.result) == (other.pk, "intent", None)


@pytest.mark.parametrize("lost", [False, True])
def test_a_late_undo_never_lands_on_the_effect_of_another_workflow(service: Downstream, lost: bool) -> None:

    def undo(*, workflow: Workflow, context: Any, effect: effects.KnownEffect) -> None:
        if lost:
            with engine.another_connection() as another:
                another.execute("UPDATE workflows_effect SET attempt_token = gen_random_uuid()")
            terminate("default")

    define([call_step(service, undo=undo), fail])
    workflow = work(submit())
    make_due(workflow)
    this = worker()
    with contextlib.suppress(ClaimLost, Exception):
        this.process_next()
    this.in_hand.close_lost()
    states = dict(Effect.objects.values_list("undo", "state"))
    assert states == ({False: "done", True: "intent"} if lost else {False: "undone", True: "done"})


def test_an_undo_that_was_begun_after_its_state_was_read_is_not_started_again(service: Downstream) -> None:
    define([call_step(service, undo=service.undo), fail])
    workflow = work(submit())
    make_due(workflow)
    begin_late = """INSERT INTO workflows_effect (workflow_id, step, undo, state, idempotency_key, attempt)
                    SELECT %s, 'call', true, 'intent', 'late', 1"""

    def tell_late() -> None:
        with engine.another_connection() as other:
            other.execute(begin_late, [workflow.pk])

    looked = engine.at("SELECT state FROM workflows_effect", tell_late, alias="attempt_log", before=False)
    with looked, pytest.raises(ClaimLost, match="before the undo was started"):
        worker().process_next()
    connections.close_all()
    assert service.undone == []


def test_an_intent_that_was_long_on_its_way_to_the_disk_is_written_again_before_the_call(
    service: Downstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next worker might believe that the call can no longer be on its way, and it is only about to be made."""
    define([call_step(service)])
    workflow = submit()
    monkeypatch.setattr(rows, "MAX_INTENT_SECONDS", 0.2)

    def stall() -> None:
        sleep(0.3)
        terminate("default")

    written = engine.at("INSERT INTO workflows_effect AS e", stall, alias="attempt_log", before=False)
    with written, pytest.raises(ClaimLost):
        worker().process_next()
    assert (state(), service.calls, workflow.status) == ("intent", [], "PENDING")


def updates_elsewhere() -> int:
    """The outcomes of calls that went to another page than that of their INTENT, with an entry in each index."""
    with connections["attempt_log"].cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'workflows_effect'",
        )
        row: tuple[int] = cursor.fetchone()
        return row[0]


def test_what_came_of_a_call_is_written_on_the_page_of_its_intent() -> None:
    define([Step(Downstream().call, once=True, name=f"call_{number}", key_ttl=KEY_TTL) for number in range(150)])
    before = updates_elsewhere()
    assert work(submit()).status == "COMPLETE"
    assert updates_elsewhere() <= before + 3, "on pages that may be filled to the end it is ten"


# --- Rows that leave out their key, as a later release will write them ------------------------------------


def leave_out_the_keys() -> None:
    with connections["attempt_log"].cursor() as cursor:
        cursor.execute("UPDATE workflows_effect SET idempotency_key = ''")


def test_the_keys_are_frozen() -> None:
    """Never change these: calls that are in doubt would be made again under another key, and charge twice."""
    workflow = Workflow(idempotency_key=UUID("0b6e0f4e-9d3c-4a55-8c1d-2f6a7b8c9d0e"))
    rows_of = [Effect(step="charge", generation=number, undo=undo) for number in (1, 2) for undo in (False, True)]
    derived = [effects.recorded_key(workflow, each) for each in rows_of]
    assert derived == [
        "0b6e0f4e-9d3c-4a55-8c1d-2f6a7b8c9d0e:charge",
        "0b6e0f4e-9d3c-4a55-8c1d-2f6a7b8c9d0e:charge:undo",
        "0b6e0f4e-9d3c-4a55-8c1d-2f6a7b8c9d0e:charge:2",
        "0b6e0f4e-9d3c-4a55-8c1d-2f6a7b8c9d0e:charge:2:undo",
    ]
    adopted = Effect(step="charge", generation=1, undo=False, idempotency_key="its own")
    assert effects.recorded_key(workflow, adopted) == "its own"


def test_a_lookup_and_an_undo_are_given_the_key_that_their_row_leaves_out(service: Downstream) -> None:
    service.found = [{"number": 7}]
    service.errors = [UnknownOutcome("no answer")]
    define([call_step(service, lookup=service.lookup, undo=service.undo, settle=0), fail])
    workflow = work(submit())
    leave_out_the_keys()
    workflow = again(workflow)
    assert [effect.idempotency_key for effect in service.looked_up] == [f"{workflow.key}:call"]
    leave_out_the_keys()
    assert again(workflow).status == "FAILED"
    assert service.undone == [f"{workflow.key}:call:undo"]


def test_a_later_generation_is_undone_under_its_own_key_though_its_row_leaves_it_out(service: Downstream) -> None:
    define([call_step(service, undo=service.undo), fail])
    workflow = to_rest(submit())
    operations.retry(workflow.pk, user=ada())
    workflow = work(workflow)
    leave_out_the_keys()
    assert again(workflow).status == "FAILED"
    assert service.undone == [f"{workflow.key}:call:undo", f"{workflow.key}:call:2:undo"]
