"""LANES: what a claim reads, and whose turn it is, where not simply the oldest goes first."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests import engine
from tests.concurrency.backlogs import analyze, say_one, store
from tests.concurrency.looks import Look, explained
from tests.engine import define, elsewhere, submit, worker
from tests.plans import Plan
from tests.plans import explained as plans_of
from workflows.engine.lanes import Lane, Lanes
from workflows.models import Attempt, Pace, Workflow

pytestmark = engine.ENGINE

OLD = {"payload": "'{}'", "invisible_until": "now() - interval '1 hour'"}


def began() -> list[int]:
    return list(Attempt.objects.order_by("id").values_list("workflow_id", flat=True))


@pytest.mark.parametrize("caps", [[], ["queue:default", "type:test", "tenant:large"]])
def test_tenants_take_turns_and_a_claim_reads_a_handful_of_pages(no_vacuum: None, caps: list[str]) -> None:
    define([say_one])
    for key in caps:
        Pace.objects.create(key=key, at_once=50)
    store(20_000, tenant="'large'", **OLD)
    analyze()
    small, none = [submit(tenant="small").pk for _ in range(2)], submit().pk
    this, looks, lanes = worker(), list[Look](), list[Plan]()
    with explained(looks), plans_of(lanes, which=lambda sql: "RECURSIVE lanes" in sql):
        for _ in range(6):
            assert this.process_next()
    assert {*small, none} <= set(began())
    assert set(began()[:3]) & {*small, none} == {none, small[0]}
    assert max(look.buffers for look in looks) <= 12
    assert any("workflow_lanes" in look.indexes for look in looks)
    assert max(plan.buffers for plan in lanes) <= 50


def test_with_priorities_tenants_and_caps_at_once_a_claim_reads_a_handful_of_pages(no_vacuum: None) -> None:
    define([say_one])
    for key in ("queue:default", "type:test", "tenant:large"):
        Pace.objects.create(key=key, at_once=50)
    store(20_000, tenant="'large'", **OLD)
    analyze()
    first = {submit(tenant=f"tenant {n}", priority=5).pk for n in range(3)}
    this, looks = worker(), list[Look]()
    with explained(looks):
        for _ in range(6):
            assert this.process_next()
    assert set(began()[:3]) == first
    assert max(look.buffers for look in looks) <= 12


def test_beside_what_is_held_a_claim_reads_a_handful_of_pages(no_vacuum: None) -> None:
    define([say_one])
    Pace.objects.create(key="type:held", held_until=timezone.now() + timedelta(hours=1))
    store(20_000, workflow_type="'held'", **OLD)
    analyze()
    free = [submit().pk for _ in range(3)]
    this, looks = worker(), list[Look]()
    with explained(looks):
        while this.process_next(thorough=False):
            pass
    assert set(began()) == set(free)
    assert max(look.buffers for look in looks) <= 12


def test_the_highest_priority_goes_first_but_in_one_of_ten() -> None:
    define([say_one])
    low, high = [submit().pk for _ in range(3)], [submit(priority=5).pk for _ in range(20)]
    this = worker()
    for _ in range(20):
        assert this.process_next()
    assert began() == [*high[:9], low[0], *high[9:18], low[1]]


def test_priorities_and_types_below_the_highest_take_turns() -> None:
    define([say_one])
    Pace.objects.create(key="type:held", held_until=timezone.now() + timedelta(hours=1))
    low = [submit(priority=-1, workflow_type="another").pk, *(submit(priority=-1).pk for _ in range(2))]
    middle, high = submit().pk, [submit(priority=5).pk for _ in range(40)]
    this = worker()
    for _ in range(30):
        assert this.process_next()
    touched = {*began(), *Workflow.objects.filter(waiting_for__contains="release").values_list("pk", flat=True)}
    assert touched == {low[0], low[1], middle, *high[:27]}


def test_of_more_lanes_than_are_looked_for_the_highest_priorities_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    define([say_one])
    monkeypatch.setattr("workflows.engine.lanes.MOST_LANES", 2)
    tenants = [f"tenant {n}" for n in range(3)] * 2
    low, high = ([submit(tenant=tenant, priority=priority).pk for tenant in tenants] for priority in (-1, 5))
    this = worker()
    while this._take_up(thorough=True):
        this._due._full_look_at = float("-inf")
    assert (set(began()[:6]), set(began()[6:])) == (set(high), set(low))


def test_more_held_lanes_than_are_looked_for_keep_no_other_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    define([say_one])
    monkeypatch.setattr("workflows.engine.lanes.MOST_LANES", 2)
    for n in range(3):
        Pace.objects.create(key=f"tenant:{n}", held_until=timezone.now() + timedelta(hours=1))
    held = {submit(tenant=str(n), priority=5).pk for n in range(3)}
    free = {submit(tenant=tenant).pk for tenant in ("one", "two") for _ in range(3)}
    this = worker()
    assert all(this._take_up(thorough=False) for _ in range(2))
    assert set(began()) < free
    Pace.objects.update(held_until=timezone.now())
    this._due.lanes._read_at = float("-inf")
    assert this._take_up(thorough=False)
    assert began()[2] in held


def test_a_tenant_with_100_000_due_does_not_delay_anothers_first() -> None:
    define([say_one])
    store(100_000, tenant="'large'", **OLD)
    analyze()
    this = worker()
    for _ in range(20):
        assert this.process_next()
    first = submit(tenant="small")
    until = timezone.now() + timedelta(seconds=1)
    while timezone.now() < until:
        assert this.process_next()
    attempt = Attempt.objects.get(workflow=first)
    assert attempt.opened_at - first.created_at < timedelta(seconds=1)


def test_what_others_have_in_hand_keeps_no_lower_priority_from_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a place under the cap in vain, and a transaction: the next look is not before all were tried."""
    define([say_one])
    for name in ("workflows.engine.claim.FULL_LOOK_EVERY", "workflows.engine.lanes.LOOK_EVERY"):
        monkeypatch.setattr(name, 0.0)
    Pace.objects.create(key="type:test", at_once=5)
    for n in range(3):
        submit(tenant=f"tenant {n}", priority=5)
    with engine.another_connection() as other, other.transaction():
        other.execute("SELECT FROM workflows_workflow FOR UPDATE")
        low, this = elsewhere(submit).pk, worker()
        assert [this._take_up(thorough=False) for _ in range(4)] == [True] * 4
        assert began() == [low]


def claims() -> bool:
    """Whether another worker claims something, and ends at once."""

    def claim() -> bool:
        with transaction.atomic():
            return worker()._due.claim_next() is not None

    return elsewhere(claim)


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("key", ["tenant:large", "type:test", "queue:default"])
def test_no_more_than_its_cap_are_in_workers_hands_by_live_claims(key: str, begun: bool) -> None:
    define([say_one])
    Pace.objects.create(key=key, at_once=1)
    submit(tenant="large", begun=begun)
    with transaction.atomic():
        assert worker()._due.claim_next()
        elsewhere(lambda: submit(tenant="large"))
        assert not claims()
        goes_on = elsewhere(lambda: submit(tenant="large", begun=True)).pk
        assert claims(), "what has begun goes on"
        Workflow.objects.filter(pk=goes_on).update(status="COMPLETE")
    assert claims(), "when the claim has ended, however it did"


def test_beside_a_full_tenant_another_begins() -> None:
    define([say_one])
    Pace.objects.create(key="tenant:large", at_once=1)
    submit(tenant="large")
    with engine.another_connection() as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended('tenant:large', 1))")
        submit(tenant="large")
        small = submit(tenant="small").pk
        this = worker()
        assert this.process_next()
        assert began() == [small]
        assert not this.process_next()
    assert worker().process_next()


@pytest.mark.parametrize(
    ("caps", "tries"),
    [
        ({"type:test": 1}, 1),
        ({"type:test": 1, **{f"tenant:tenant {n}": 2 for n in range(20)}}, 1),  # these are free
        ({f"tenant:tenant {n}": 1 for n in range(20)}, 20),
    ],
    ids=["of all", "of all, and free ones", "of each"],
)
def test_where_caps_are_full_a_turn_ends_when_each_lane_was_passed_over(
    caps: dict[str, int], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes. The lanes were looked for again meanwhile, without end."""
    define([say_one])
    tried: list[Lane] = []

    def take_places(lanes: Lanes, lane: Lane) -> Any:
        assert len(tried) < tries, "it goes on"
        tried.append(lane)
        return take(lanes, lane)

    take = Lanes.take_places
    monkeypatch.setattr(Lanes, "take_places", take_places)
    for n in range(20):
        submit(tenant=f"tenant {n}")
    Pace.objects.bulk_create(Pace(key=key, at_once=at_once) for key, at_once in caps.items())
    monkeypatch.setattr("workflows.engine.lanes.LOOK_EVERY", 0.0)
    this = worker()
    with engine.another_connection() as other, other.transaction():
        for key in caps:
            other.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))", [key])
        assert not this._take_up(thorough=False)
        assert len(tried) == tries
        tried.clear()
        begun = elsewhere(lambda: submit(tenant="tenant 1", begun=True)).pk
        this._due._full_look_at = float("-inf")
        assert this._take_up(thorough=False)
        assert began() == [begun]


@pytest.mark.parametrize("taken", ["its row", "the place of its type"])
def test_what_cannot_begin_under_its_caps_does_not_keep_others_from_beginning(taken: str) -> None:
    define([say_one])
    Pace.objects.create(key="tenant:busy", at_once=2)
    Pace.objects.create(key="type:another", at_once=1)
    submit(tenant="busy", workflow_type="another")
    with engine.another_connection() as other, other.transaction():
        if taken == "its row":
            other.execute("SELECT FROM workflows_workflow FOR UPDATE")
        else:
            other.execute("SELECT pg_advisory_xact_lock(hashtextextended('type:another', 1))")
        others = {elsewhere(partial(submit, tenant=tenant)).pk for tenant in ("one", "two") for _ in range(3)}
        this = worker()
        for is_busy in (*[True] * 8, False):  # one, two, it alone; one, two, it alone; one, two; it alone
            this._due._full_look_at = float("-inf")
            assert this._take_up(thorough=False) == is_busy
        assert set(began()) == others
