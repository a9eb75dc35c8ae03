"""CLAIM: which workflow a worker takes, what it puts back, and what it finds of the worker before."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Event as Flag
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from tests import engine
from tests.clock import Clock, standing_still
from tests.engine import define, kinds, outcomes, submit, work, worker
from tests.workflows.cancelling import nothing
from tests.workflows.engine.steps import say_one
from tests.workflows.refusing import lose
from workflows.engine.claim import DueWorkflows
from workflows.models import Attempt, Event, Workflow

pytestmark = engine.ENGINE


def test_it_says_that_nothing_is_due() -> None:
    define([say_one])
    submit(invisible_until=timezone.now() + timedelta(hours=1))
    submit(queue="another")
    assert worker().process_next() is False


def test_a_claim_tells_the_trace_and_leaves_it_unset_on_the_row() -> None:
    define([say_one])
    submit(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    with transaction.atomic():
        claim = DueWorkflows("default").claim_next()
    assert claim
    assert (claim.traceparent[:6], claim.workflow.get_deferred_fields()) == ("00-4bf", {"traceparent"})


def test_a_claimed_row_and_its_copy_are_as_django_reads_the_row() -> None:
    submit(payload={"plan": {"codes": [1, 2.5]}}, wake_on=["paid"], expires_at=timezone.now() + timedelta(hours=1))
    with transaction.atomic():
        claim = DueWorkflows("default").claim_next()
    assert claim
    read, copy = Workflow.objects.defer("traceparent").get(), claim.workflow.copy()
    for workflow in (claim.workflow, copy):
        mine, djangos = ({**vars(each), "_state": (each._state.adding, each._state.db)} for each in (workflow, read))
        assert mine == djangos
    copy.payload["plan"]["codes"].append(3)
    assert claim.workflow.payload == read.payload


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


# --- What has started goes first, in three of four claims (docs/adr/0012) ---------------------------


def taken() -> list[int]:
    """The ids of the workflows, in the order in which workers took them."""
    return list(Attempt.objects.order_by("id").values_list("workflow_id", flat=True))


def drain() -> None:
    this = worker()
    while this.process_next():
        pass


def test_three_of_four_claims_are_of_what_has_started_and_all_where_nothing_else_is_due() -> None:
    define([nothing])
    fresh = [submit().pk for _ in range(2)]
    begun = [submit(begun=True).pk for _ in range(11)]
    drain()
    assert taken() == [*begun[:3], fresh[0], *begun[3:6], fresh[1], *begun[6:]]


def test_what_a_dead_worker_leaves_is_the_first_of_what_has_not_started() -> None:
    """A death decides nothing, and writes nothing: the row is due at once, since when it was due before."""
    define([nothing])
    left, begun, fresh = submit(), submit(begun=True), submit()
    Attempt.objects.create(workflow=left, number=1, worker="gone:1", outcome="killed", closed_at=Now())
    drain()
    assert taken()[1:] == [begun.pk, left.pk, fresh.pk]


@pytest.mark.parametrize("only", ["", "compensation"])
def test_whatever_is_due_a_claim_is_one_statement(only: str) -> None:
    define([nothing])
    this = worker(only=only)
    fresh, begun = submit(), submit(begun=True, compensating=True)
    with engine.sent() as statements:
        busy = [this.process_next(thorough=False) for _ in range(3)]
    looks = ["looked_at" in sql for sql in statements]
    assert (taken(), looks.count(True)) == ([begun.pk] if only else [begun.pk, fresh.pk], 3)
    assert busy == ([True, False, False] if only else [True, True, False])


# --- By a clock that stands still until the test moves it -------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return standing_still(monkeypatch, "workflows.engine.claim", "workflows.engine.loop")


@pytest.fixture
def without_an_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server reads the table as it lies, and sorts: nothing is in order by itself."""
    options = "-c enable_indexscan=off -c enable_bitmapscan=off"
    given = connection.settings_dict.get("OPTIONS", {})
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {**given, "options": options})
    connection.close()
    yield
    connection.close()  # a session is kept for the next test


def is_done(workflow: Workflow) -> bool:
    return Workflow.objects.get(pk=workflow.pk).status == "COMPLETE"


@pytest.mark.parametrize("lying_in_order", [True, False])
def test_it_takes_them_in_the_order_of_their_due_times_and_of_their_ids(
    lying_in_order: bool, clock: Clock, without_an_index: None
) -> None:
    """With the clock standing still, the watermark alone decides: no full look comes in between."""
    define([nothing])
    first = timezone.now() - timedelta(minutes=1)
    later = submit(invisible_until=first + timedelta(seconds=1))
    due_at_once = [submit(invisible_until=first) for _ in range(4)]
    if not lying_in_order:
        Workflow.objects.filter(pk=due_at_once[0].pk).update(last_error_message="moved to the end of the table")
    drain()
    connection.close()
    assert taken() == [*(each.pk for each in due_at_once), later.pk]


def test_it_looks_from_the_oldest_due_row_four_times_a_second_and_not_more_often(clock: Clock) -> None:
    """Each full look pays for all that the drain has left dead; what was woken waits for the next one."""
    define([nothing])
    for _ in range(4):
        submit()
    woken, this = submit(invisible_until=timezone.now() + timedelta(hours=1)), worker()
    assert this.process_next()
    Workflow.objects.filter(pk=woken.pk).update(invisible_until="2020-01-01T00:00:00Z")
    clock.now += 0.24
    assert this.process_next()
    assert not is_done(woken), "the watermark is past it"
    clock.now += 0.02
    assert this.process_next()
    assert is_done(woken), "before the two that are left"


@pytest.mark.parametrize(("luck", "seconds"), [(0.0, 0.25), (1.0, 1.0), (2.0, 1.75)])
def test_four_workers_share_the_full_looks(
    luck: float, seconds: float, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looks every second, by chance sooner or later: else those that were started together would look together."""
    monkeypatch.setattr("workflows.engine.claim.random.expovariate", lambda rate: luck / rate)
    define([nothing])
    this = worker()
    this._due.live_workers = 4
    assert not this.process_next(thorough=False)
    behind = submit(invisible_until="2020-01-01T00:00:00Z")
    clock.now += seconds - 0.01
    assert not this.process_next(thorough=False)
    clock.now += 0.02
    assert this.process_next(thorough=False)
    assert is_done(behind)


def test_both_pools_are_looked_at_in_full(clock: Clock) -> None:
    """Not only the one that the full look finds something in."""
    define([nothing])
    for begun in (False, True, True, True, True):
        submit(begun=begun)
    this = worker()
    for _ in range(4):
        assert this.process_next()
    behind = [submit(begun=begun, invisible_until="2020-01-01T00:00:00Z") for begun in (True, False)]
    clock.now += 0.26
    for _ in range(3):
        assert this.process_next(thorough=False)
    assert all(is_done(each) for each in behind)


def test_an_idle_worker_finds_what_is_seen_later_than_it_was_due(clock: Clock) -> None:
    """A row is seen when its transaction commits: it may be due since before a look that could not see it yet."""
    define([nothing])
    this = worker()
    assert not this.process_next(thorough=False)
    late = submit(invisible_until=timezone.now() - timedelta(seconds=0.5))
    assert this.process_next(thorough=False)
    assert is_done(late)


def test_a_worker_that_drains_ends_with_a_full_look(clock: Clock) -> None:
    define([nothing])
    this = worker()
    this._due.live_workers = 200
    assert not this.process_next()
    behind = submit(invisible_until="2020-01-01T00:00:00Z")
    this.run(drain=True)
    assert is_done(behind)


def test_what_refers_to_a_row_need_not_wait_for_its_claim() -> None:
    """A foreign key's check, of a table of yours say, locks the row as here: by another connection, in a step."""
    referred: list[Any] = []

    def refer(*, workflow: Workflow, context: Any) -> None:
        with engine.another_connection() as other:
            sql = "SELECT id FROM workflows_workflow WHERE id = %s FOR KEY SHARE NOWAIT"
            referred.append(other.execute(sql, [workflow.pk]).fetchone())

    define([refer])
    workflow = work(submit())
    assert (workflow.status, referred) == ("COMPLETE", [(workflow.pk,)])
