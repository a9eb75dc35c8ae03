"""What a supervisor reads of its children, whenever they write it and whenever they die."""

import os
import signal
import time
from typing import Any

import pytest

from workflows.engine import process_status
from workflows.engine.process_status import Slot, WorkerStatus
from workflows.engine.worker_boundary import WorkersBoundary

HERE = WorkerStatus(worker_id=7, attempt_id=8, workflow_id=9, since=1.5, deadline=31.5, lost=False, step="charge")


def test_a_fork_writes_and_its_parent_reads() -> None:
    first, second = process_status.allocate(2)
    pid = os.fork()
    if pid == 0:
        first.write(HERE)
        os._exit(0)
    os.waitpid(pid, 0)
    assert first.read() == HERE
    assert second.read() == WorkerStatus(), "its neighbour's is untouched"
    first.clear()
    assert first.read() == WorkerStatus()


def test_a_name_that_is_too_long_is_cut() -> None:
    (slot,) = process_status.allocate(1)
    slot.write(HERE._replace(step="é" * 150))
    read = slot.read()
    assert read is not None
    assert read.step == "é" * 100


def test_an_undo_whose_own_code_starts_late_has_its_whole_time_and_keeps_its_name() -> None:
    status = process_status.PublishedStatus(process_status.allocate(1)[0])
    boundary = WorkersBoundary(status, (), None, None, None)  # type: ignore[arg-type]
    announced_at = time.monotonic() - 2
    status.update(step="undo charge", since=announced_at, deadline=announced_at + 30)
    boundary._announced_at = announced_at
    boundary.calling()
    assert (status.now.step, status.now.deadline - status.now.since) == ("undo charge", pytest.approx(30))
    assert status.now.since > announced_at + 2


class Half(bytearray):
    """Memory of a writer that dies in the midst of a write."""

    dying = False

    def __setitem__(self, at: Any, value: Any) -> None:
        if self.dying and isinstance(at, slice):
            half = len(value) // 2
            super().__setitem__(slice(at.start, at.start + half), value[:half])
            raise SystemExit
        super().__setitem__(at, value)


def test_what_was_written_before_a_death_in_the_midst_of_a_write_is_read() -> None:
    memory = Half(2000)
    slot = Slot(memory, 0)  # type: ignore[arg-type]
    for number in range(3):
        memory.dying = False
        slot.write(HERE._replace(attempt_id=number))
        memory.dying = True
        with pytest.raises(SystemExit):
            slot.write(WorkerStatus(attempt_id=99, step="x" * 200))
        assert slot.read() == HERE._replace(attempt_id=number)


def test_what_is_not_whole_is_not_read() -> None:
    (slot,) = process_status.allocate(1)
    slot.write(HERE)
    slot._memory[slot._places[slot._memory[slot._start]] + 9] ^= 1
    assert slot.read() is None


def test_nothing_torn_is_ever_read() -> None:
    """A child that does nothing but write, and is killed at some moment, again and again."""
    for round_ in range(4):
        (slot,) = process_status.allocate(1)
        slot.write(WorkerStatus(attempt_id=0, workflow_id=0, step="step-0"))
        pid = os.fork()
        if pid == 0:
            number = 0
            while True:
                number += 1
                slot.write(WorkerStatus(attempt_id=number, workflow_id=number, step=f"step-{number}"))
        seen = set()
        give_up_at = time.monotonic() + 0.05 + round_ / 1000
        while time.monotonic() < give_up_at:
            seen.add(slot.read())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seen.add(slot.read())
        for status in seen - {None}:
            assert status is not None
            assert status.attempt_id == status.workflow_id
            assert status.step == f"step-{status.attempt_id}"
        assert slot.read() is not None, "the last one is whole"
