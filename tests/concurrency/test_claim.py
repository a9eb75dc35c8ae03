"""What a claim costs, whatever waits or is finished: the very statement that the worker runs, counted by the server."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import Event as Flag
from threading import Thread
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections

from tests import engine
from tests.engine import define, submit, worker
from tests.processes import until
from workflows import inbox
from workflows.models import Attempt, ManualTask, Workflow
from workflows.waits import require_approval

pytestmark = engine.ENGINE

WAITING = FINISHED = 100_000
DRAINED = 2_000


def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def ask(*, workflow: Workflow, context: Any) -> None:
    require_approval(workflow, "review", question="May it go on?", timeout=timedelta(hours=1))


class Look(NamedTuple):
    """One run of the claim's statement."""

    buffers: int
    indexes: list[str]
    from_watermark: bool


@contextmanager
def explained(looks: list[Look]) -> Iterator[None]:
    """Have the server explain each claim just before it is made, in the claim's own transaction."""

    def explain(execute: Any, sql: str, parameters: Sequence[Any], *rest: Any) -> Any:
        if "SKIP LOCKED" not in sql:
            return execute(sql, parameters, *rest)
        with connection.cursor() as cursor:
            # Past the wrappers, and with the same parameters.
            cursor.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
            ((found,),) = cursor.cursor.fetchall()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        looks.append(Look(buffers, list(_indexes(plan)), "(invisible_until, id) >=" in sql))
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(explain):
        yield


def _indexes(plan: dict[str, Any]) -> Iterator[str]:
    if "Index Name" in plan:
        yield plan["Index Name"]
    for part in plan.get("Plans", []):
        yield from _indexes(part)


def store(count: int, *, payload: str, **columns: str) -> None:
    """Store `count` workflows; `payload` and `columns` are SQL."""
    columns = {"idempotency_key": "gen_random_uuid()", "workflow_type": "'test'", "payload": payload, **columns}
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO workflows_workflow ({', '.join(columns)})"
            f" SELECT {', '.join(columns.values())} FROM generate_series(1, %s) n",
            [count],
        )


def store_due(count: int = DRAINED) -> None:
    """Rows of about 1,750 bytes that do not compress: four leave more than a tenth of a page free, updated ones too.

    With less the server prunes dead versions in passing, and no damage can be seen.
    """
    noise = "SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 50 + n * 0)"
    store(count, payload=f"jsonb_build_object('noise', ({noise}))", invisible_until="now() - interval '1 hour'")


def store_backlog() -> None:
    """What a claim must not walk over. All of it is older than what is due."""
    old = {"created_at": "now() - interval '30 days'", "payload": "'{}'"}
    store(WAITING, invisible_until="now() + n * interval '1 second'", **old)
    finished = {"status": "'COMPLETE'", "completed_at": "now()"}
    store(FINISHED, invisible_until="now() - n * interval '1 second'", **finished, **old)


@pytest.fixture
def no_vacuum() -> Iterator[None]:
    """No autovacuum on the table, which would clean up behind the test; and no dead rows of others."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE workflows_workflow, workflows_signal CASCADE")
        cursor.execute("ALTER TABLE workflows_workflow SET (autovacuum_enabled = off)")
        yield
        cursor.execute("ALTER TABLE workflows_workflow RESET (autovacuum_enabled)")


def analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE workflows_workflow")


def drain() -> None:
    """Let one worker do all that is due, to the look that finds nothing."""
    this = worker()
    while this.process_next():
        pass


def look_once() -> Look:
    """The claim of a worker that has just started: from the oldest due row on."""
    looks: list[Look] = []
    with explained(looks):
        assert worker().process_next()
    return looks[0]


def next_multixact() -> int:
    """The number of a multixact made just now, by two sessions that share a row."""
    group = Group.objects.get_or_create(name="shared")[0]
    share = "SELECT xmax::text::bigint FROM auth_group WHERE id = %s FOR SHARE"
    with (
        engine.another_connection() as one,
        engine.another_connection() as two,
        one.transaction(),
        two.transaction(),
    ):
        one.execute(share, [group.pk])
        two.execute(share, [group.pk])
        row = two.execute("SELECT xmax::text::bigint FROM auth_group WHERE id = %s", [group.pk]).fetchone()
    assert row is not None
    return int(row[0])


def multixacts_made_by(what: Any) -> int:
    """How many multixacts `what` makes: the least of three rounds, for other databases of the server make some too."""
    made = []
    for _ in range(3):
        before = next_multixact()
        what()
        made.append(next_multixact() - before - 1)
        if made[-1] == 0:
            break
    return min(made)


def test_a_claim_reads_a_handful_of_pages_whatever_waits_or_is_finished(no_vacuum: None) -> None:
    define([say_one])
    store_due(100)
    analyze()
    with_none = look_once().buffers
    store_backlog()
    analyze()
    look = look_once()
    # An index of 100,000 entries has a level more, and the claim reads it twice: to find the row, and to lock it.
    assert look.buffers <= with_none + 2
    # The row; and whether it is to be cancelled, for which an empty table of signals needs no index.
    assert look.indexes[0] == "workflow_due"
    assert set(look.indexes) <= {"workflow_due", "signal_unanswered", "signal_of_workflow"}
    assert look.buffers <= 10


def test_a_claim_reads_a_handful_of_pages_however_many_signals_nobody_has_answered(no_vacuum: None) -> None:
    define([say_one])
    store(10_000, payload="'{}'", invisible_until="now() - interval '1 hour'")
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id)
               SELECT 'console', n, 'cancel', -n FROM generate_series(1, 5000) n"""
        )
        cursor.execute("ANALYZE workflows_signal")
    analyze()
    assert look_once().buffers <= 10


def test_the_pool_for_compensation_finds_its_rows_by_an_index_of_their_own(no_vacuum: None) -> None:
    define([say_one])
    store_backlog()
    store_due(10_000)
    last = submit(compensating=True)
    analyze()
    looks: list[Look] = []
    with explained(looks):
        assert worker(only="compensation").process_next()
    assert Workflow.objects.get(pk=last.pk).status == "FAILED"
    assert "workflow_compensating" in looks[0].indexes
    assert looks[0].buffers <= 10


@pytest.mark.alone
@pytest.mark.long
def test_a_drain_leaves_no_dead_rows_in_the_way(no_vacuum: None) -> None:
    """A row updated inside the savepoint, or seen through a foreign key by the journal, stays in the index undead."""
    define([say_one])
    store_backlog()
    store_due(DRAINED)
    analyze()
    drain()
    for _ in range(200):
        submit()
    # On a server that others use, not before their older transactions have ended. What cannot be marked as dead at all
    # stays in the way until vacuum.
    until(lambda: look_once().buffers <= 30, seconds=3)


@pytest.mark.alone
@pytest.mark.long
def test_a_drain_under_a_held_claim_leaves_no_dead_rows_in_the_way(no_vacuum: None) -> None:
    """One slow step, here of another worker, keeps the server from forgetting any row that has died since it began."""
    begun, finish = Flag(), Flag()

    def say_one_slowly(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        if workflow.payload.get("slow"):
            begun.set()
            assert finish.wait(120)
        return {"number": 1}

    def run_the_slow_one() -> None:
        try:
            worker(queue="slow").process_next()
        finally:
            connections.close_all()

    define([say_one_slowly])
    store_backlog()
    store_due(DRAINED + 500)
    slow = submit({"slow": True}, queue="slow")
    analyze()
    slow_worker = Thread(target=run_the_slow_one)
    slow_worker.start()
    try:
        assert begun.wait(30)
        this = worker()
        for _ in range(DRAINED):
            assert this.process_next()
        looks: list[Look] = []
        began = time.monotonic()
        with explained(looks):
            for _ in range(400):
                assert this.process_next()
        seconds = time.monotonic() - began
        assert engine.is_locked(slow), "it was held all the while"
    finally:
        finish.set()
        slow_worker.join()
    usual = [look for look in looks if look.from_watermark]
    full = [look for look in looks if not look.from_watermark]
    assert max((look.buffers for look in usual), default=9999) <= 15
    # The full look pays for all of them: that is why it is rare.
    assert len(full) <= seconds / 0.25 + 1


@pytest.mark.alone
def test_a_drain_makes_no_multixacts(no_vacuum: None) -> None:
    define([say_one])

    def store_and_drain() -> None:
        store_due(200)
        drain()

    assert multixacts_made_by(store_and_drain) == 0
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"complete"}


@pytest.mark.alone
def test_waits_and_their_signals_make_no_multixacts(no_vacuum: None) -> None:
    """Attempts, waits, tasks and signals are written by other sessions while the row is held."""

    def ask_and_be_told_at_once(*, workflow: Workflow, context: Any) -> None:
        """The signal comes while the row is held, as from a webhook: the sender cannot wake it."""
        ask_for_it_again = ManualTask.objects.using("journal").filter(workflow=workflow).first()
        if ask_for_it_again and workflow.payload.get("at_once"):
            tell(ask_for_it_again)
        ask(workflow=workflow, context=context)

    def tell(task: ManualTask) -> None:
        with engine.another_connection() as other:
            other.execute(
                "INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id, payload)"
                ' VALUES (\'console\', %s, %s, %s, \'{"approved": true, "by": "ada", "reason": ""}\')'
                " ON CONFLICT (source, dedupe_key) DO NOTHING",
                [task.signal_name, task.signal_name, task.workflow_id],
            )

    def ask_answer_and_drain() -> None:
        for _ in range(50):
            submit({"at_once": True})
        drain()
        for task in ManualTask.objects.filter(state="open")[:25]:
            tell(task)
            assert inbox.wake(task.workflow_id)
        for task in ManualTask.objects.filter(state="open")[25:]:
            engine.make_due(task.workflow)
        drain()
        ManualTask.objects.update(state="expired")
        assert not Workflow.objects.filter(status="PENDING").exists()

    define([ask_and_be_told_at_once])
    assert multixacts_made_by(ask_answer_and_drain) == 0
    assert set(Workflow.objects.values_list("status", flat=True)) == {"COMPLETE"}


def test_it_looks_from_the_oldest_due_row_four_times_a_second() -> None:
    """What becomes due behind the watermark is not passed over for longer, however long the backlog ahead of it."""
    define([say_one])
    store_due(3000)
    this = worker()
    assert this.process_next()
    woken = submit()
    Workflow.objects.filter(pk=woken.pk).update(invisible_until="2020-01-01T00:00:00Z")
    began = time.monotonic()
    while Workflow.objects.get(pk=woken.pk).status == "PENDING":
        assert this.process_next()
        assert time.monotonic() - began < 2
    assert Workflow.objects.filter(status="PENDING").exists(), "before the backlog"


def test_two_claims_at_the_same_moment_are_of_two_rows() -> None:
    both = Flag()
    seen: list[int] = []

    def meet(*, workflow: Workflow, context: Any) -> None:
        seen.append(workflow.pk)
        if len(seen) == 2:
            both.set()
        assert both.wait(10), "the other worker found nothing to claim"

    def run() -> None:
        try:
            worker().process_next()
        finally:
            connections.close_all()

    define([meet])
    pks = {submit().pk, submit(idempotency_key=uuid.uuid4()).pk}
    threads = [Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == pks
    assert set(Workflow.objects.values_list("status", flat=True)) == {"COMPLETE"}, "neither waited for the other"


def buffers_of(what: Callable[[], Any]) -> int:
    """How many pages `what` reads by its statements on the claim's connection."""
    pages = []

    def explain(execute: Any, sql: str, parameters: Sequence[Any], *rest: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
            ((found,),) = cursor.cursor.fetchall()
        plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
        pages.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return execute(sql, parameters, *rest)

    with connection.execute_wrapper(explain):
        what()
    return sum(pages)


def test_waking_reads_a_few_pages_whatever_waits(no_vacuum: None) -> None:
    """100,000 listen for the signals of their linking ids; 2,000 signals are there that nobody has asked for."""
    define([say_one])
    listening = {"wake_on": "ARRAY['paid']", "linking_id": "'acc-' || n", "waiting_for": "'a signal'"}
    store(WAITING, payload="'{}'", invisible_until="now() + interval '1 day'", **listening)
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_signal (source, dedupe_key, name, workflow_id, linking_id)
               SELECT 'shop', n, 'shipped', CASE WHEN n % 2 = 0 THEN n END, CASE WHEN n % 2 = 1 THEN 'acc-' || n END
                 FROM generate_series(1, 2000) n"""
        )
        cursor.execute("ANALYZE workflows_signal")
    analyze()
    assert buffers_of(lambda: inbox.wake_linked("acc-7")) <= 15
    last = Workflow.objects.latest("id").pk
    assert buffers_of(lambda: inbox.wake(last)) <= 15
    assert buffers_of(inbox.sweep) <= 2000 * 3, "a few for each signal, and none for what waits"


def test_waking_reads_a_few_pages_however_many_of_a_linking_id_do_not_listen(no_vacuum: None) -> None:
    """An account's workflows of all years: they have ended, or wait for something else."""
    define([say_one])
    store(1, payload="'{}'", linking_id="'acc'", wake_on="ARRAY['paid']", invisible_until="now() + interval '1 day'")
    inbox.store(source="shop", dedupe_key="1", name="shipped", linking_id="acc", payload={})
    others = {"payload": "'{}'", "linking_id": "'acc'", "invisible_until": "now() + interval '1 day'"}
    store(10_000, **others)
    store(10_000, status="'COMPLETE'", completed_at="now()", **others)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE workflows_workflow, workflows_signal")
    assert buffers_of(lambda: inbox.wake_linked("acc")) <= 15
    assert buffers_of(inbox.sweep) <= 30
