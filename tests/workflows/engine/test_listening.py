"""An idle worker is woken by an announcement: it need not wait for its next look."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from threading import Thread, Timer
from time import monotonic
from typing import Any

import pytest
from django.db import connections

from tests import engine
from tests.engine import another_connection, define, submit, terminate, with_its_connections
from workflows.engine import listening
from workflows.engine.backoff import Delay
from workflows.engine.listening import Listener
from workflows.engine.loop import Worker
from workflows.errors import ClaimLost
from workflows.models import Workflow
from workflows.signals.notify import CHANNEL
from workflows.state import attempt_log
from workflows.stop_flag import Flag

pytestmark = engine.ENGINE

# Seconds: a rest that nobody ends would be a test that fails by its length alone, so there is a limit.
LONG = 60.0


@pytest.fixture
def listener() -> Iterator[Listener]:
    """One that listens to the queue `default`, and has looked once more since."""
    listener = resting()
    listener.rest(live_workers=1)
    yield listener
    listener.end()


def resting(queue: str = "default", stopping: Flag | None = None, *, seconds: float = LONG) -> Listener:
    listener = Listener(queue, stopping or Flag())
    rest_for(listener, seconds)
    return listener


def rest_for(listener: Listener, seconds: float) -> None:
    listener._delay = Delay(seconds, seconds)


def notify(queue: str = "default") -> None:
    with another_connection() as other:
        other.execute("SELECT pg_notify(%s, %s)", [CHANNEL, queue])


def channels() -> list[Any]:
    return attempt_log.execute("SELECT pg_listening_channels()", ())


def lasts(listener: Listener, *, live_workers: int = 1) -> float:
    began = monotonic()
    listener.rest(live_workers=live_workers)
    return monotonic() - began


def test_it_rests_until_something_is_announced(listener: Listener) -> None:
    Timer(0.2, notify).start()
    assert lasts(listener) < LONG / 2


def test_it_does_not_rest_before_it_has_looked_once_more() -> None:
    """What was stored before it listens is not announced to it."""
    listener = resting()
    assert lasts(listener) < LONG / 2
    assert channels() == [(CHANNEL,)]
    for _ in range(2):  # a worker that is busy: each NOTIFY is delivered to every session that listens
        listener.end()
        assert channels() == []


@pytest.mark.parametrize("with_an_answer", [False, True])
def test_what_was_announced_while_it_looked_counts(listener: Listener, with_an_answer: bool) -> None:
    notify()
    if with_an_answer:  # it came along with that of some statement
        attempt_log.execute("SELECT 1", ())
    assert listener._heard is with_an_answer
    assert lasts(listener) < LONG / 2


def test_an_announcement_starts_the_delays_anew(listener: Listener) -> None:
    """Of several that come at once, one may be stored a moment after it was announced for the others."""
    listener._delay = Delay(0.01, LONG)
    for _ in range(20):
        listener._delay.next()
    notify()
    listener.rest(live_workers=1)
    assert listener._delay.next() < 1


@pytest.mark.parametrize(
    "tell",
    [
        lambda: notify("other"),
        lambda: notify(""),
        lambda: attempt_log.execute("SET application_name = 'renamed'", ()),  # a session is told of that, too
    ],
    ids=["another queue", "no queue", "no announcement"],
)
def test_what_is_none_of_its_business_wakes_nobody(listener: Listener, tell: Callable[[], object]) -> None:
    tell()
    assert not listener._hears_within(0.1)


def test_one_that_is_told_to_stop_rests_no_more() -> None:
    stopping = Flag()
    listener = resting(stopping=stopping)
    listener.rest(live_workers=1)
    usual = signal.signal(signal.SIGUSR1, lambda *_: stopping.set())
    try:
        Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        assert lasts(listener) < LONG / 2
        assert lasts(listener) < LONG / 2, "nor later"
    finally:
        signal.signal(signal.SIGUSR1, usual)
        listener.end()


def test_where_many_are_idle_an_announcement_does_not_wake_all_of_them_each_time(listener: Listener) -> None:
    notify()
    listener.rest(live_workers=100_000)  # not for 100 s at least
    notify()
    assert not listener._hears_within(0.1)
    assert listener._heard, "but it is not forgotten"
    listener._deaf_until = monotonic() + 0.1
    assert lasts(listener) < LONG / 2


def test_a_session_that_has_ended_is_found_at_once(listener: Listener) -> None:
    terminate(attempt_log.ALIAS)
    began = monotonic()
    with pytest.raises(ClaimLost):
        listener.rest(live_workers=1)
    assert monotonic() - began < LONG / 2
    connections[attempt_log.ALIAS].close()


def test_a_new_session_listens_again(listener: Listener) -> None:
    connections[attempt_log.ALIAS].close()
    assert lasts(listener) < LONG / 2, "it looks once more"
    assert channels() == [(CHANNEL,)]


def test_without_a_queue_it_listens_to_nothing() -> None:
    listener = resting("", seconds=0.01)
    listener.rest(live_workers=1)
    assert channels() == []


# --- The worker ---------------------------------------------------------------------------------


def test_an_idle_worker_takes_up_what_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own looks are hours apart."""
    monkeypatch.setattr(listening, "IDLE_DELAY", 3600.0)
    monkeypatch.setattr(listening, "MAX_IDLE_DELAY", 3600.0)
    define([lambda *, workflow, context: None])
    stopping = Flag()
    this = Worker(name="test-host:1", features=(), stopping=stopping)
    thread = Thread(target=with_its_connections, args=[this.run])
    thread.start()
    try:
        for _ in range(2):  # idle, busy, idle again
            wait_until_idle(thread)
            workflow = submit()
            notify()
            until_complete(workflow)
    finally:
        stopping.set()
        notify()
        thread.join(LONG)
    assert not thread.is_alive()


def wait_until_idle(thread: Thread) -> None:
    """Until its session listens, and it has looked once more: it rests in a poll."""
    give_up_at = monotonic() + LONG
    with another_connection() as other:
        while monotonic() < give_up_at:
            row = other.execute(
                """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'
                      AND query LIKE '%LISTEN%' AND query NOT LIKE '%UNLISTEN%'"""
            ).fetchone()
            if row and row[0]:
                return
            assert thread.is_alive()
    raise AssertionError("it does not listen")


def until_complete(workflow: Workflow) -> None:
    give_up_at = monotonic() + LONG
    while monotonic() < give_up_at:
        if Workflow.objects.get(pk=workflow.pk).status == "COMPLETE":
            return
    raise AssertionError("nobody took it up")
