"""What is stored is announced to idle workers, by a thread of its own, and no answer depends on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests import engine
from tests.engine import another_connection
from tests.processes import until
from tests.workflows.search.test_search_keys import PLAIN
from workflows.definition import definitions
from workflows.intake import submissions
from workflows.postgres.jsonb import parse
from workflows.signals import notify
from workflows.signals.notify import CHANNEL, Announcer

pytestmark = engine.ENGINE


@pytest.fixture
def announcer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Announcer]:
    monkeypatch.setattr(notify, "AFTER_A_FAILURE", 0.01)
    announcer = Announcer()
    yield announcer
    announcer.end()


@pytest.fixture
def heard() -> Iterator[psycopg.Connection[Any]]:
    with another_connection() as other:
        other.execute(f"LISTEN {CHANNEL}")
        yield other


def next_of(session: psycopg.Connection[Any], seconds: float = 30.0) -> list[str]:
    return [each.payload for each in session.notifies(timeout=seconds, stop_after=1)]


def test_it_announces_a_queue(announcer: Announcer, heard: psycopg.Connection[Any]) -> None:
    announcer.announce("slow")
    assert next_of(heard) == ["slow"]
    announcer.announce("default")
    assert next_of(heard) == ["default"]


def test_a_burst_is_announced_by_few(announcer: Announcer, heard: psycopg.Connection[Any]) -> None:
    """One NOTIFY holds up every other on the server: there are no more of them than of moments."""
    for _ in range(10_000):
        announcer.announce("default")
    announcer.announce("last")
    told = []
    while "last" not in told:
        told += next_of(heard)
    assert len(told) < 1_000


def test_two_announcements_are_apart(announcer: Announcer, heard: psycopg.Connection[Any]) -> None:
    began = monotonic()
    for _ in range(20):
        announcer.announce("default")
        next_of(heard)
    assert monotonic() - began > 19 * notify.EVERY


def test_it_goes_on_after_its_session_was_ended(announcer: Announcer, heard: psycopg.Connection[Any]) -> None:
    announcer.announce("default")
    assert next_of(heard) == ["default"]
    heard.execute(
        """SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
            WHERE query LIKE '%pg_notify%' AND pid <> pg_backend_pid()"""
    )

    def announced_again() -> list[str]:
        announcer.announce("again")
        return next_of(heard, 0.1)

    assert until(announced_again) == ["again"]


# --- Submissions --------------------------------------------------------------------------------


@pytest.fixture
def told(engine: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The queues that submissions announce."""
    settings.WORKFLOWS = ["tests.workflows.search.test_search_keys.PLAIN"]
    definitions.cache_clear()
    queues: list[str] = []
    monkeypatch.setattr(notify, "announce", queues.append)
    yield queues
    definitions.cache_clear()


@pytest.mark.parametrize(
    "store",
    [
        partial(submissions.enter, PLAIN, idempotency_key=uuid4()),
        partial(submissions.start, PLAIN, tenant="", business_key="b"),
    ],
    ids=["a submission", "a workflow that is started"],
)
def test_what_is_stored_is_announced_once(store: Callable[..., Any], told: list[str]) -> None:
    for _ in range(2):
        store(payload=parse(b"{}"), submitted_by="web")
        assert told == ["default"], "the second was there already"


def test_a_process_that_has_not_started_announces_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a worker, which starts children, or a shell."""
    monkeypatch.setattr(notify, "_announcer", None)
    notify.announce("default")
    assert notify._announcer is None


def test_one_that_has_started_announces_from_the_first_on(
    monkeypatch: pytest.MonkeyPatch, heard: psycopg.Connection[Any]
) -> None:
    monkeypatch.setattr(notify, "_begun", False)
    monkeypatch.setattr(notify, "_announcer", None)
    notify.begin()
    notify.announce("default")
    try:
        assert next_of(heard) == ["default"]
        first = notify._announcer
        notify.announce("default")
        assert notify._announcer is first
    finally:
        assert notify._announcer
        notify._announcer.end()


def test_what_cannot_be_announced_for_want_of_a_thread_is_stored_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The submission has been committed: its client must hear that."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(notify, "_begun", True)
    monkeypatch.setattr(notify, "_announcer", None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    notify.announce("default")
    assert caplog.messages == ["not announced, workers find it by themselves: there is no room for a thread"]
