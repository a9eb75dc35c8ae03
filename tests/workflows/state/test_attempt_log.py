"""The fence: what only the holder of the row may write."""

import pytest
from django.db import connections, transaction

from tests import engine
from tests.engine import define, last_attempt, submit, work
from workflows.errors import ClaimLost
from workflows.models import Attempt
from workflows.state import attempt_log

pytestmark = engine.ENGINE


def xid_of_an_ended_transaction() -> str:
    with transaction.atomic(), transaction.get_connection().cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text")
        return str(cursor.fetchone()[0])


def test_a_worker_that_lost_its_row_opens_no_attempt_and_does_not_close_that_of_the_rightful_one() -> None:
    workflow = submit()
    lost = {"claim_xid": xid_of_an_ended_transaction(), "worker": "w", "release": "r"}
    with pytest.raises(ClaimLost):
        attempt_log.open_attempt(workflow, **lost)
    assert not Attempt.objects.exists()
    Attempt.objects.create(workflow=workflow, number=1, worker="rightful:1")
    with pytest.raises(ClaimLost):
        attempt_log.open_attempt(workflow, **lost)
    assert Attempt.objects.get().closed_at is None


@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_that_lost_its_row_while_it_opened_an_attempt_is_in_nobodys_way(
    begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its claim has ended, its statement goes on: the next worker takes the same number, and meets it there.

    Of a workflow that has not started, the next worker then looks for the attempts that there are.
    """
    define([lambda *, workflow, context: None])
    workflow = submit(begun=begun)
    with engine.another_connection() as lost, lost.transaction():
        lost.execute(
            "INSERT INTO workflows_attempt (workflow_id, number, worker, release) VALUES (%s, 1, 'lost:1', '')",
            [workflow.pk],
        )
        rightful = engine.draining()
        engine.until_blocked()
    rightful.join(60)
    ended = Attempt.objects.filter(workflow=workflow).order_by("number")
    assert list(ended.values_list("number", "outcome")) == [(1, "vanished"), (2, "complete")]
    assert ("nothing is decided: ClaimLost" in caplog.text) is begun
    assert "nothing is decided" not in caplog.text.replace("nothing is decided: ClaimLost", "")
    assert "engine itself" not in caplog.text


def test_what_commits_late_is_not_overwritten_as_lost() -> None:
    """COMMIT arrived, its answer did not: the worker that thinks it lost the attempt finds it closed."""
    define([lambda *, workflow, context: None])
    workflow = work(submit())
    attempt = last_attempt(workflow)
    attempt_log.close_as_lost(attempt_log.OpenAttempt(attempt.pk, 1, workflow.pk, "3", worker=attempt.worker))
    assert last_attempt(workflow).outcome == "complete"


def test_waits_outside_a_run_say_so() -> None:
    with pytest.raises(RuntimeError, match="inside a step"):
        attempt_log.attempt_of(submit())


def test_it_is_connected_before_the_claim_starts() -> None:
    """Opened after it, a server restarted in between would answer for another transaction of the same number."""

    def is_connected() -> bool:
        return connections["attempt_log"].connection is not None

    define([lambda *, workflow, context: None])
    submit()
    connections["attempt_log"].close()
    with engine.at("SKIP LOCKED", is_connected) as connected:
        engine.worker().process_next()
    assert connected == [True]
