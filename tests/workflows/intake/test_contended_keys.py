"""A submission whose key another transaction holds: it waits by itself, and for so long at most."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import DataError

from tests.servers import database_url
from tests.workflows.intake.entering import entered, new, submission, with_batches
from workflows.intake import batching as batches_module
from workflows.intake import contended_keys
from workflows.intake.batching import Batches
from workflows.intake.submissions import Submission
from workflows.models import Workflow
from workflows.postgres.deadlines import DatabaseUnavailable
from workflows.postgres.jsonb import Document

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def held(key: UUID) -> Iterator[psycopg.Connection[Any]]:
    """Another session has stored a submission with this key, and not committed yet."""
    with psycopg.connect(database_url()) as other:
        other.execute(
            "INSERT INTO workflows_workflow (idempotency_key, workflow_type, submitted_by, payload) "
            "VALUES (%s, 'test', 'shop', '{}')",
            [key],
        )
        yield other


def test_a_key_that_another_transaction_holds_holds_up_nobody_else() -> None:
    stuck = submission()
    beside = [submission() for _ in range(30)]

    async def use(batches: Batches) -> tuple[list[Any], float, Any]:
        began = monotonic()
        waiting = asyncio.ensure_future(batches.enter(stuck))
        answers = await entered(batches, beside)
        took = monotonic() - began
        assert not waiting.done()
        await asyncio.to_thread(other.commit)
        return answers, took, await waiting

    with held(stuck.key) as other:
        answers, took, answer = with_batches(use)
    assert all(map(new, answers))
    assert took < 2
    assert answer.replayed
    assert Workflow.objects.count() == 31


def test_a_key_that_is_held_for_too_long_is_503_and_holds_up_no_batch_when_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches_module, "LOCK_TIMEOUT", 1.0)
    stuck = submission()

    async def use(batches: Batches) -> tuple[float, float, list[Any]]:
        times = []
        for _ in range(2):
            waiting = asyncio.ensure_future(entered(batches, [stuck]))
            await asyncio.sleep(0.01)
            began = monotonic()
            await batches.enter(submission())
            times.append(monotonic() - began)
            refused = await waiting
            assert isinstance(refused[0], DatabaseUnavailable)
        return times[0], times[1], refused

    with held(stuck.key):
        first, second, _ = with_batches(use, seconds=1.6)
    assert first > 0.8
    assert second < 0.5
    assert Workflow.objects.count() == 3  # that of the other transaction, which ended well, among them


def test_one_whose_key_is_free_waits_for_no_other_that_is_held() -> None:
    """Sent with a held key, and so put in contended keys with it."""
    stuck, beside = submission(key=UUID(int=1)), submission(key=UUID(int=2))

    async def use(batches: Batches) -> float:
        began = monotonic()
        waiting = asyncio.ensure_future(entered(batches, [stuck]))
        await batches.enter(beside)
        took = monotonic() - began
        await asyncio.to_thread(other.rollback)
        await waiting
        return took

    with held(stuck.key) as other:
        assert with_batches(use) < 1


# --- What is answered, and what is remembered -----------------------------------------------------


def test_what_was_answered_that_it_is_not_stored_is_not_stored_later() -> None:
    stuck = submission()

    async def use(batches: Batches) -> Any:
        (answer,) = await entered(batches, [stuck])
        assert batches._contended.working
        await asyncio.wait({batches._contended.working}, timeout=5)  # its statement is on its way still
        await asyncio.to_thread(other.rollback)
        await batches.enter(submission())
        return answer

    with held(stuck.key) as other:
        assert isinstance(with_batches(use, seconds=0.6), DatabaseUnavailable)
    assert not Workflow.objects.filter(idempotency_key=stuck.key).exists()


def test_what_postgresql_refuses_is_refused_at_once_also_apart_from_the_batches() -> None:
    """A number of the row is out of PostgreSQL's range: its own refusal, whoever has parsed the text."""
    bad = Submission(UUID(int=1), Document('{"a": 1e999999}', {}), "shop")

    async def use(batches: Batches) -> list[Any]:
        answers = []
        for _ in range(2):  # the second time, nobody is at work on such rows any more
            batches._contended._remember(bad.key)
            answers += await entered(batches, [bad])
            assert batches._contended.working
            await batches._contended.working
        return answers

    assert [type(answer) for answer in with_batches(use)] == [DataError, DataError]


def test_a_key_that_was_held_is_forgotten_once_its_submission_is_stored() -> None:
    stuck = submission()

    async def use(batches: Batches) -> tuple[bool, Any, bool]:
        waiting = asyncio.ensure_future(batches.enter(stuck))
        while not batches._contended.knows(stuck.key):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(other.rollback)
        answer = await waiting
        await asyncio.sleep(0)
        return True, answer, batches._contended.knows(stuck.key)

    with held(stuck.key) as other:
        was_known, answer, is_known = with_batches(use)
    assert (was_known, new(answer), is_known) == (True, True, False)


def test_and_else_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is held again goes in a batch again, and holds that up once."""
    monkeypatch.setattr(contended_keys, "REMEMBERED", 0.0)
    stuck = submission()

    async def use(batches: Batches) -> bool:
        await entered(batches, [stuck])
        return batches._contended.knows(stuck.key)

    with held(stuck.key):
        assert with_batches(use, seconds=0.6) is False


def test_no_more_keys_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contended_keys, "MOST_REMEMBERED", 2)
    stuck = [submission() for _ in range(3)]

    async def use(batches: Batches) -> int:
        await entered(batches, stuck)
        return sum(batches._contended.knows(each.key) for each in stuck)

    with ExitStack() as stack:
        for each in stuck:
            stack.enter_context(held(each.key))
        assert 1 <= with_batches(use, seconds=1.5) <= 2
