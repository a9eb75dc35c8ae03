"""STATUS of each worker process, in memory that it shares with its supervisor. Nothing here waits."""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

_STEP_BYTES = _TROUBLE_BYTES = 200
# The fields of a WorkerStatus, its two texts last; then a checksum of them all.
_RECORD = struct.Struct(f"<qqqddd?{_TROUBLE_BYTES}s{_STEP_BYTES}s")
_CHECKSUM_BYTES = 4
_RECORD_SIZE = _RECORD.size + _CHECKSUM_BYTES
_SLOT_SIZE = 1 + 2 * _RECORD_SIZE

NEVER = float("inf")


class WorkerStatus(NamedTuple):
    """What a worker process is doing. Times are from `time.monotonic`, which all processes of a host share."""

    worker_id: int = 0  # its row in the table of workers
    attempt_id: int = 0  # 0: no attempt is open
    workflow_id: int = 0
    since: float = 0.0
    deadline: float = NEVER
    heard_at: float = 0.0  # when the database last answered the worker between two workflows
    lost: bool = False  # the worker has lost its database: the workflow is not to blame for what follows
    trouble: str = ""  # why it has no database, in words for the log
    step: str = ""  # the last step that it started


class Slot:
    """The slot of one child process: only the child writes, its supervisor reads.

    A slot has two records, and a byte that says which of them counts. The writer fills the other record, then flips the
    byte: so a writer that dies during a write leaves the earlier record. A reader that two writes overtake sees a wrong
    checksum, and reads again.
    """

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._memory = memory
        self._start = start
        self._places = (start + 1, start + 1 + _RECORD_SIZE)  # of the two records

    def write(self, status: Iterable[Any]) -> None:
        """Write the fields of a WorkerStatus. Each step does: a call more here is one more a step."""
        *fields, trouble, step = status
        told = trouble and trouble.encode()[:_TROUBLE_BYTES]  # mostly there is none
        record = _RECORD.pack(*fields, told or b"", step.encode()[:_STEP_BYTES])
        other = 1 - (self._memory[self._start] & 1)
        at = self._places[other]
        checksum = zlib.crc32(record).to_bytes(_CHECKSUM_BYTES, "little")
        self._memory[at : at + _RECORD_SIZE] = record + checksum
        self._memory[self._start] = other

    def read(self) -> WorkerStatus | None:
        """The status that was written last; None if it cannot be read (never seen so far, and it stops nothing)."""
        for _ in range(100):
            at = self._places[self._memory[self._start] & 1]
            copy = self._memory[at : at + _RECORD_SIZE]
            record, checksum = copy[: _RECORD.size], copy[_RECORD.size :]
            if zlib.crc32(record).to_bytes(_CHECKSUM_BYTES, "little") == checksum:
                *fields, trouble, step = _RECORD.unpack(record)
                texts = (text.rstrip(b"\0").decode(errors="ignore") for text in (trouble, step))
                return WorkerStatus._make([*fields, *texts])
        return None

    def clear(self) -> None:
        self.write(WorkerStatus())


class PublishedStatus:
    """What this process is doing `now`; its supervisor reads it in the slot."""

    def __init__(self, slot: Slot) -> None:
        self._slot, self._fields = slot, WorkerStatus()._asdict()

    @property
    def now(self) -> WorkerStatus:
        return WorkerStatus(**self._fields)

    def update(self, **changes: Any) -> None:
        self._fields |= changes
        self._slot.write(self._fields.values())


def allocate(count: int) -> list[Slot]:
    """Slots for `count` children, in anonymous memory that forks share."""
    memory = mmap.mmap(-1, count * _SLOT_SIZE)
    made = [Slot(memory, number * _SLOT_SIZE) for number in range(count)]
    for slot in made:
        slot.clear()
    return made
