"""What came of a call, and the database does not take it: it is kept, and written later or asked about."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, connections

from tests import engine
from tests.engine import define, last_attempt, submit, work, worker
from tests.workflows.refusing import CALLED, assert_put_back, call, call_and, say_one
from workflows.definition import Step
from workflows.effects import KnownEffect
from workflows.errors import ClaimLost
from workflows.models import Attempt, Effect, Workflow

pytestmark = [*engine.ENGINE, pytest.mark.usefixtures("nothing_called")]


def test_a_result_that_a_read_only_server_refuses_is_written_when_it_takes_it() -> None:
    """The database is read-only from the call on, for whoever connects: the worker keeps what it knows."""
    database = connection.ops.quote_name(connection.settings_dict["NAME"])
    with engine.another_connection() as other:

        def become_read_only() -> None:
            other.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            with connections["attempt_log"].cursor() as cursor:
                cursor.execute("SET default_transaction_read_only = on")

        define([Step(call_and(become_read_only), once=True, name="call"), say_one])
        workflow, this = submit(), worker()
        try:
            with pytest.raises(ClaimLost):
                this.process_next()
            this.in_hand.close_lost()
            assert Attempt.objects.get().outcome == "", "it cannot be closed"
            with pytest.raises(ClaimLost, match="cannot be written"):
                this.process_next()
            this.in_hand.close_lost()
        finally:
            other.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
            connections.close_all()
        assert this.process_next()
    assert Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["lost", "complete"]
    assert (Effect.objects.get().settled_by, CALLED) == ("call", ["call"])


def test_a_result_that_is_refused_for_good_is_asked_about_and_its_worker_goes_on() -> None:
    """The ledger keeps its INTENT. Kept for ever, the result would keep the worker from everything else."""
    found: list[KnownEffect] = []

    def lookup(*, workflow: Workflow, context: Any, effect: KnownEffect) -> dict[str, Any]:
        found.append(effect)
        return {"number": 2}

    define([Step(call, once=True, lookup=lookup)])
    workflow, this = submit(), worker()
    with engine.another_connection() as other:
        other.execute("ALTER TABLE workflows_effect ADD CONSTRAINT never_done CHECK (state <> 'done')")
        try:
            with pytest.raises(ClaimLost):
                this.process_next()
            this.in_hand.close_lost()
        finally:
            connections.close_all()
            other.execute("ALTER TABLE workflows_effect DROP CONSTRAINT never_done")
    assert_put_back(Workflow.objects.get(pk=workflow.pk))
    assert Effect.objects.get().state == "intent"
    assert this.process_next()
    assert (Workflow.objects.get(pk=workflow.pk).context["number"], len(found), CALLED) == (2, 1, ["call"])


@contextmanager
def results_refused(sqlstate: str = "55P03") -> Iterator[Callable[[], None]]:
    """No result of a call can be written just now: until what is given is called, or the end."""
    with engine.another_connection() as other:
        other.execute(
            f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'so it goes' USING ERRCODE = '{sqlstate}'; END $$"""
        )
        other.execute("CREATE TRIGGER refuse BEFORE UPDATE ON workflows_effect FOR EACH ROW EXECUTE FUNCTION refuse()")
        try:
            yield lambda: other.execute("ALTER TABLE workflows_effect DISABLE TRIGGER refuse")
        finally:
            connections.close_all()
            other.execute("DROP TRIGGER refuse ON workflows_effect")
            other.execute("DROP FUNCTION refuse")


@pytest.mark.parametrize("sqlstate", ["53100", "55P03"])
def test_a_result_that_cannot_be_written_just_now_is_kept_and_nothing_else_is_taken(sqlstate: str) -> None:
    """A full disk, a migration that holds the table for ten seconds. Without a lookup a person would be asked."""
    define([Step(call, once=True), say_one])
    workflow, this = submit(), worker()
    with results_refused(sqlstate):
        with pytest.raises(ClaimLost):
            this.process_next()
        this.in_hand.close_lost()
        next_one = submit()
        with pytest.raises(ClaimLost, match="cannot be written"):
            this.process_next()
    assert not Attempt.objects.filter(workflow=next_one).exists()
    this.run(drain=True)
    assert set(Workflow.objects.values_list("status", flat=True)) == {"COMPLETE"}
    assert list(Effect.objects.values_list("settled_by", flat=True)) == ["call", "call"]
    assert (len(CALLED), last_attempt(workflow).number) == (2, 2)


def test_a_worker_that_is_stopped_goes_on_trying_to_write_a_result_for_its_grace() -> None:
    with results_refused() as take_them_again:
        asked = []

        def must_stop() -> bool:
            """Asked before the step, and then before each new attempt to write."""
            asked.append(1)
            if len(asked) == 3:
                take_them_again()
            return False

        this = worker(must_stop=must_stop)
        define([Step(call_and(this.stopping.set), once=True, name="call")])
        workflow = submit()
        this.run()
    assert len(asked) == 3
    assert (Effect.objects.get().state, last_attempt(workflow).outcome) == ("done", "lost")
    assert work(workflow).status == "COMPLETE"
    assert CALLED == ["call"]


def test_a_result_that_cannot_be_written_before_the_end_of_the_grace_is_lost_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    this = worker(must_stop=lambda: this.stopping.is_set())
    define([Step(call_and(this.stopping.set), once=True, name="call")])
    workflow = submit()
    with results_refused():
        this.run()
    lost = f"workflow {workflow.pk}: what came of the call of call is lost, it could not be written before the end "
    assert lost + "(LockNotAvailable 55P03); the next attempt asks whether it happened" in caplog.text
    assert Effect.objects.get().state == "intent"
