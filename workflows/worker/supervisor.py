"""The supervisor of `runworker`: forks worker processes, replaces those that die, stops them in good order.

It holds no database connection over a fork, and no thread: a child starts with nothing of its parent's.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import FrameType

from django.db import connections

from workflows.models import Attempt
from workflows.redaction import frames
from workflows.stop_flag import Flag
from workflows.worker import exits, healthfile, lease, sessions, slots
from workflows.worker.exits import Death
from workflows.worker.healthfile import Report
from workflows.worker.loop import Worker
from workflows.worker.slots import Slot, WorkerStatus

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# A child that dies younger than this would only be forked again to die again: wait first, doubling up to the limit.
YOUNG = 1.0
MAX_RESTART_DELAY = 5.0
# After the grace, what neither ends its step nor dies by SIGTERM.
KILL_AFTER_GRACE = 10.0
# Past a step's timeout, which the worker enforces itself where it can: in C code that holds the interpreter, it cannot.
KILL_OVERDUE_AFTER = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `runworker` was asked for; times are seconds."""

    processes: int = 1
    queue: str = "default"
    only: str = ""
    drain: bool = False
    grace: float = 30.0
    max_runtime: float | None = None
    health_file: str = ""


@dataclass(slots=True)
class Child:
    """One of our worker processes; `ended_by_us` is why, once we have killed it."""

    slot: Slot
    forked_at: float
    ended_by_us: str = ""


class Supervisor:
    """Runs `options.processes` workers until it is told to stop, or (drain) until none has found anything due."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._children: dict[int, Child] = {}  # by process id
        self._slots = slots.allocate(options.processes)  # those that no child has
        # Until when the child of each slot, or the one before it, was with the database.
        self._heard = dict.fromkeys(self._slots, monotonic())
        self._written_at = self._warned_at = float("-inf")
        self._deaths = exits.DeathRegister(f"{socket.gethostname()}:{os.getpid()}")
        self._wanted = options.processes
        self._stopping = self._refused = False
        self._wake_up = Flag()  # by a signal: look again
        self._restart_delay = 0.0
        self._fork_again_at = float("-inf")

    def run(self) -> None:
        """Return when every child has ended. SIGTERM or SIGINT begins that: no more claims, then `grace` seconds.

        So does a child that refuses to work: another one would refuse, too. Then Refused is raised in the end.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_to_stop)
        signal.signal(signal.SIGCHLD, lambda *_: self._wake_up.set())
        began, asked_at = monotonic(), None
        while self._wanted or self._children:
            while self._may_fork():
                self._fork()
            self._wake_up.wait(0.5)
            self._wake_up.clear()
            self._reap()
            self._end_overdue()
            self._deaths.flush()
            self._report_health()
            if self.options.max_runtime is not None and monotonic() > began + self.options.max_runtime:
                self._stopping = True
            if self._stopping:
                self._wanted, asked_at = 0, asked_at or monotonic()
                overdue = monotonic() > asked_at + self.options.grace + KILL_AFTER_GRACE
                # Again each time around: one sent before the child had its handler is lost.
                for pid in self._children:
                    if overdue:
                        self._kill(pid, "grace")
                    else:
                        os.kill(pid, signal.SIGTERM)
        self._deaths.flush(at_once=True)
        if self.options.health_file:
            Path(self.options.health_file).unlink(missing_ok=True)
        if self._refused:
            raise sessions.UnfitSessions("A worker process has refused to work: see the log.")

    def _report_health(self) -> None:
        """Keep the health file young, and say once a minute when the children have long been without the database."""
        now = monotonic()
        if now < self._written_at + healthfile.WRITE_EVERY:
            return
        self._written_at = now
        report = self._report()
        if self.options.health_file:
            try:
                healthfile.write(Path(self.options.health_file), report)
            except OSError as error:
                logger.warning("cannot write the health file: %s", error.strerror)
        if now >= self._warned_at + healthfile.WARN_EVERY and (
            silence := healthfile.silence(report, healthfile.MAX_SILENCE)
        ):
            self._warned_at = now
            logger.warning("%s", silence)

    def _report(self) -> Report:
        """Of the children that there are and, a child that died being forked again in a moment, of those missing."""
        now, trouble = monotonic(), ""
        missing = max(0, self._wanted - len(self._children))
        looked_at = [child.slot for child in self._children.values()] + self._slots[len(self._slots) - missing :]
        for slot in looked_at:
            if status := slot.read():
                self._heard[slot] = max(self._heard[slot], healthfile.heard_until(status, now))
                trouble = status.trouble or trouble
        return Report([round(now - self._heard[slot], 1) for slot in looked_at], trouble)

    def _may_fork(self) -> bool:
        missing = len(self._children) < self._wanted
        return missing and not self._stopping and monotonic() >= self._fork_again_at

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        self._wake_up.set()

    def _end_overdue(self) -> None:
        """Kill the children whose step never returns.

        The death is written first, while the row is still held: the next worker then knows that the step has failed.
        """
        for pid, child in self._children.items():
            status = child.slot.read()
            if status is None or child.ended_by_us or monotonic() < status.deadline + KILL_OVERDUE_AFTER:
                continue
            self._deaths.add(Death(status, Attempt.Outcome.INTERRUPTED, "overdue"))
            self._deaths.flush()
            if child.slot.read() == status:  # else it came to an end after all
                logger.warning("worker process %s is overdue in %s", pid, status.step)
                self._kill(pid, "overdue")

    def _kill(self, pid: int, why: str) -> None:
        self._children[pid].ended_by_us = why
        os.kill(pid, signal.SIGKILL)

    def _fork(self) -> None:
        connections.close_all()
        parent, slot = os.getpid(), self._slots.pop()
        pid = os.fork()
        if pid == 0:
            # Nothing of the parent's, neither its exit handlers nor its stack, may run on in the child.
            exit_code = 1
            try:
                _work(self.options, parent, slot)
                exit_code = 0
            except sessions.UnfitSessions as refused:
                logger.error("%s", refused)
                exit_code = sessions.REFUSED
            except BaseException as error:
                logger.error("the worker failed:\n%s", frames(error))
            finally:
                os._exit(exit_code)
        self._children[pid] = Child(slot, forked_at=monotonic())

    def _reap(self) -> None:
        """Take note of the children that have ended. One that has drained the queue is not replaced."""
        for pid in list(self._children):
            ended, wait_status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            child = self._children.pop(pid)
            status = child.slot.read() or WorkerStatus()
            child.slot.clear()
            self._slots.append(child.slot)
            code = os.waitstatus_to_exitcode(wait_status)
            if status.attempt_id or status.worker_id:
                self._deaths.add(exits.death(status, code, ended_by_us=child.ended_by_us))
            if code == sessions.REFUSED and not status.attempt_id:
                self._stopping = self._refused = True
                continue
            # An attempt still open: it left in the midst of a workflow, as by os._exit(0) in a step.
            if code == 0 and not status.attempt_id and (self.options.drain or self._stopping):
                self._wanted = max(0, self._wanted - 1)
                continue
            how = f"by {exits.signal_name(-code)}" if code < 0 else f"with exit code {code}"
            logger.warning("worker process %s ended %s", pid, how)
            age = monotonic() - child.forked_at
            self._restart_delay = min(max(self._restart_delay, 0.1) * 2, MAX_RESTART_DELAY) if age < YOUNG else 0.0
            self._fork_again_at = monotonic() + self._restart_delay


def _work(options: Options, parent: int, slot: Slot) -> None:
    """The life of one child."""
    stopping = Flag()
    give_back_at = float("inf")

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal give_back_at
        if not stopping.is_set():
            give_back_at = monotonic() + options.grace
        stopping.set()

    # Ctrl-C reaches the whole group: the child takes it as the request that its parent will make too.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with(parent)  # with our own handlers: what comes earlier sets a flag of the parent's that nobody reads here
    name = f"{socket.gethostname()}:{os.getpid()}"
    lease.describe_connections(name)
    worker = Worker(
        queue=options.queue,
        only=options.only,
        name=name,
        stopping=stopping,
        must_stop=lambda: monotonic() > give_back_at,
        slot=slot,
    )
    worker.run(drain=options.drain)
    worker.sign_off()
    connections.close_all()


def _die_with(parent: int) -> None:
    """Ask the kernel for SIGTERM when the parent dies, so that no child runs on unsupervised. Linux only."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except AttributeError:
        return  # no prctl: not Linux
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)  # it died before we had asked
