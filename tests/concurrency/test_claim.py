"""What a claim costs, whatever waits or is finished: the very statement that the worker runs, counted by the server."""

from __future__ import annotations

import time
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now

from tests import engine
from tests.concurrency.backlogs import DRAINED, analyze, drain, say_one, store, store_backlog, store_due
from tests.concurrency.looks import Look, explained, look_once
from tests.engine import define, submit, with_its_connections, worker
from tests.processes import until
from workflows.models import Workflow

pytestmark = engine.ENGINE


def test_a_claim_reads_a_handful_of_pages_whatever_waits_or_is_finished(no_vacuum: None) -> None:
    define([say_one])
    store_due(100)
    analyze()
    with_none = look_once().buffers
    store_backlog(20_000)
    analyze()
    look = look_once()
    # A large index has a level more, and the claim reads it twice: to find the row, and to lock it.
    assert look.buffers <= with_none + 2
    # The row, of either pool; and whether it is to be cancelled, for which an empty table of signals needs no index.
    assert look.indexes[:2] == ["workflow_begun", "workflow_fresh"]
    assert set(look.indexes[2:]) <= {"signal_open_of_workflow", "signal_of_workflow"}
    assert look.buffers <= 12


def test_neither_pool_is_walked_over_for_the_sake_of_the_other(no_vacuum: None) -> None:
    """After an outage 100,000 retries are due, and the planner knows of none."""
    define([say_one])
    store_due(100)
    analyze()
    store(100_000, payload="'{}'", begun="true", invisible_until="now() - interval '2 hours'")
    this, looks = worker(), list[Look]()
    with explained(looks):
        for _ in range(4):
            assert this.process_next()
    assert [look.indexes[0] for look in looks] == [*3 * ["workflow_begun"], "workflow_fresh"]
    assert max(look.buffers for look in looks) <= 10


def test_an_idle_worker_does_not_walk_over_what_the_others_drain(no_vacuum: None) -> None:
    """Nor over what was drained before it has claimed anything itself; only its full look pays for that."""
    define([say_one])
    idle, looks = worker(), list[Look]()
    idle._due.live_workers = 1_000_000  # the others have just looked in full
    assert not idle.process_next()
    for pool in ("begun", "fresh"):
        store(20_000, payload="'{}'", begun=str(pool == "begun"), invisible_until="now() - interval '1 hour'")
    Workflow.objects.update(status="COMPLETE", completed_at=Now())
    with explained(looks):
        assert not idle.process_next()
        assert not idle.process_next(thorough=False)
    first, full, usual = looks
    assert full.buffers > 200
    assert max(first.buffers, usual.buffers) <= 10


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
    assert look_once().buffers <= (10 if connection.pg_version >= 160000 else 11)  # one of the services


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
def test_a_drain_leaves_no_dead_rows_in_the_way(no_vacuum: None) -> None:
    """A row updated inside the savepoint, or seen by the attempt log through a foreign key, stays in the index."""
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
def test_a_drain_under_a_held_claim_leaves_no_dead_rows_in_the_way(no_vacuum: None) -> None:
    """One slow step, here of another worker, keeps the server from forgetting rows that died since it started."""
    begun, finish = Flag(), Flag()

    def say_one_slowly(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        if workflow.payload.get("slow"):
            begun.set()
            assert finish.wait(120)
        return {"number": 1}

    define([say_one_slowly])
    store_backlog()
    store_due(DRAINED + 500)
    slow = submit({"slow": True}, queue="slow")
    analyze()
    slow_worker = Thread(target=with_its_connections, args=[worker(queue="slow").process_next])
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


def test_two_claims_at_the_same_moment_are_of_two_rows() -> None:
    both = Flag()
    seen: list[int] = []

    def meet(*, workflow: Workflow, context: Any) -> None:
        seen.append(workflow.pk)
        if len(seen) == 2:
            both.set()
        assert both.wait(30), "the other worker found nothing to claim"

    define([meet])
    pks = {submit().pk, submit().pk}
    threads = [Thread(target=with_its_connections, args=[worker().process_next]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == pks
    assert set(Workflow.objects.values_list("status", flat=True)) == {"COMPLETE"}, "neither waited for the other"
