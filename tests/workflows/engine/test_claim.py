"""CLAIM: which workflow a worker takes, what it puts back, and what it finds of the worker before."""

from datetime import timedelta
from threading import Event as Flag
from typing import Any

from django.db import connection
from django.utils import timezone

from tests import engine
from tests.engine import define, kinds, outcomes, submit, work, worker
from tests.workflows.engine.steps import say_one
from tests.workflows.refusing import lose
from workflows.models import Attempt, Event, Workflow

pytestmark = engine.ENGINE


def test_it_says_that_nothing_is_due() -> None:
    define([say_one])
    submit(invisible_until=timezone.now() + timedelta(hours=1))
    submit(queue="another")
    assert worker().process_next() is False


def test_at_the_end_of_its_grace_a_worker_gives_back_at_the_next_step() -> None:
    stop = Flag()

    def run_while_told_to_stop(*, workflow: Workflow, context: Any) -> None:
        stop.set()

    define([run_while_told_to_stop, say_one])
    before = submit()
    workflow = work(before, must_stop=stop.is_set)
    assert workflow.status == "PENDING"
    assert workflow.invisible_until == before.invisible_until, "due at once, for the next worker"
    assert outcomes(workflow) == {"run_while_told_to_stop": "skipped"}
    assert kinds(workflow) == ["put_back"]
    assert work(workflow).status == "COMPLETE"


def test_an_attempt_found_open_has_vanished() -> None:
    define([say_one])
    workflow = submit()
    Attempt.objects.create(workflow=workflow, number=1, worker="gone:1")
    workflow = work(workflow)
    assert list(workflow.attempts.order_by("number").values_list("outcome", flat=True)) == ["vanished", "complete"]
    assert kinds(workflow) == ["vanished", "completed"]


def test_that_an_attempt_vanished_is_told_also_when_the_next_one_is_lost() -> None:
    """A step closes the connection: `atomic()` exits without a word then, as if all had been committed."""

    def lose_the_claim(*, workflow: Workflow, context: Any) -> None:
        connection.close()

    define([lose_the_claim])
    workflow = submit()
    Attempt.objects.create(workflow=workflow, number=1, worker="gone:1")
    assert lose(workflow).status == "PENDING"
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["vanished", "lost"]
    told = Event.objects.filter(workflow=workflow).order_by("id").values_list("kind", "attempt")
    assert list(told) == [("vanished", 1), ("lost", 2)]
