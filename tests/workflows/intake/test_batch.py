"""Which submissions go together: decided without a database."""

import asyncio
from collections import deque
from collections.abc import Iterator
from uuid import UUID

import pytest

from tests.workflows.intake.entering import DEFINITION, submission
from workflows.intake.batch import Batch, Row
from workflows.intake.submissions import Submission
from workflows.postgres.jsonb import Document


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def row(loop: asyncio.AbstractEventLoop, key: int, length: int = 0) -> Row:
    return Row(submission({"a": "x" * length}, key=UUID(int=key)), None, [], loop.create_future())


def numbers(rows: Batch | deque[Row]) -> list[int]:
    return [each.key.int for each in rows]


def test_all_that_waits_goes_together_in_the_order_of_the_keys(loop: asyncio.AbstractEventLoop) -> None:
    queue = deque(row(loop, key) for key in (3, 1, 2))
    assert numbers(Batch.take(queue)) == [1, 2, 3]
    assert not queue
    assert not Batch.take(queue)


def test_the_first_to_come_go_first_when_there_are_too_many(loop: asyncio.AbstractEventLoop) -> None:
    queue = deque(row(loop, key) for key in (9, 8, 1, 2))
    assert numbers(Batch.take(queue, rows=3)) == [1, 8, 9]
    assert numbers(queue) == [2]


def test_large_ones_wait_for_the_next_batch_and_one_that_is_too_large_goes_alone(
    loop: asyncio.AbstractEventLoop,
) -> None:
    queue = deque([row(loop, 1, 5000), row(loop, 2, 10), row(loop, 3, 10), row(loop, 4, 5000)])
    room_for_two = queue[1].size + queue[2].size
    assert numbers(Batch.take(queue, size=room_for_two)) == [1]
    assert numbers(Batch.take(queue, size=room_for_two)) == [2, 3]
    assert numbers(Batch.take(queue, size=room_for_two)) == [4]


def test_a_row_takes_as_much_as_its_text_does_in_memory(loop: asyncio.AbstractEventLoop) -> None:
    """One character beyond the first 65,536 makes each of them take four bytes. The parsed value is not kept."""
    text = '{"a": "' + "x" * 10_000 + '\U0001f600"}'
    sent = Submission(UUID(int=1), Document(text, {"a": 1}), "shop").sealed(DEFINITION)
    one = Row(sent, None, [], loop.create_future())
    assert one.size > 40_000
    assert one.submission.payload == Document(text, {})


def test_the_second_of_two_equal_keys_waits_for_the_next_batch(loop: asyncio.AbstractEventLoop) -> None:
    queue = deque(row(loop, key) for key in (1, 1, 2, 1, 3))
    assert numbers(Batch.take(queue)) == [1, 2, 3]
    assert numbers(Batch.take(queue)) == [1]
    assert numbers(Batch.take(queue)) == [1]
    assert not queue


def test_what_is_answered_already_is_dropped(loop: asyncio.AbstractEventLoop) -> None:
    queue = deque(row(loop, key) for key in (1, 2, 3))
    queue[0].answer.cancel()
    assert numbers(Batch.take(queue, rows=2)) == [2, 3]
    assert not queue


@pytest.mark.parametrize("count", [2, 3, 250])
def test_its_halves_are_all_of_it_and_smaller(loop: asyncio.AbstractEventLoop, count: int) -> None:
    batch = Batch(row(loop, key) for key in range(count))
    first, second = batch.halves()
    assert numbers(first) + numbers(second) == list(range(count))
    assert 0 < len(first) < count


def test_an_answer_is_given_once(loop: asyncio.AbstractEventLoop) -> None:
    late = row(loop, 1)
    late.answer.cancel()
    assert Batch([late]).accept([(late.key, 1)]) == []
    late.refuse(RuntimeError())
    assert late.answer.cancelled()
