"""The supervisor of `runworker`: it forks worker processes, replaces those that die, and stops them in good order.

It has no threads, and holds no database connection over a fork, so a child inherits neither.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from time import monotonic
from types import FrameType

from django.db import connections

from workflows import forks
from workflows.engine import deaths, healthfile, lease, process_status, sessions, streams
from workflows.engine.deaths import Death
from workflows.engine.extension import Feature
from workflows.engine.healthfile import Report
from workflows.engine.loop import Worker
from workflows.engine.process_status import Slot, WorkerStatus
from workflows.models import Attempt
from workflows.postgres.wire import give_up_in
from workflows.stop_flag import Flag

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# Seconds. A child that dies younger than this is likely to die again: the supervisor waits before the next fork, twice
# as long each time, up to the limit.
YOUNG = 1.0
MAX_RESTART_DELAY = 5.0
# Seconds after the grace. Then the supervisor kills a child that is still there.
KILL_AFTER_GRACE = 10.0
# Seconds after a step's timeout. The worker enforces the timeout itself, except in C code that holds the interpreter;
# there the supervisor kills the worker.
KILL_OVERDUE_AFTER = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `runworker`; times are in seconds."""

    processes: int = 1
    queue: str = "default"
    only: str = ""
    drain: bool = False
    grace: float = 30.0
    max_runtime: float | None = None
    health_file: str = ""


@dataclass(slots=True)
class Child:
    """A worker process; `ended_by_us` says why the supervisor has killed it, and is empty until then."""

    slot: Slot
    forked_at: float
    ended_by_us: str = ""


class Supervisor:
    """Runs `options.processes` workers until a signal stops it or, with `drain`, until each finds nothing due."""

    def __init__(self, options: Options, features: Sequence[Feature]) -> None:
        self.options, self._features = options, features
        self._children: dict[int, Child] = {}  # by process id
        self._slots = process_status.allocate(options.processes)  # the slots without a child
        # When a child in each slot, present or former, last spoke to the database.
        self._heard = dict.fromkeys(self._slots, monotonic())
        self._written_at = self._warned_at = float("-inf")
        # Containers may share a host name, and each has a process 7.
        self._host = f"{socket.gethostname()}/{token_hex(2)}"
        self._deaths = deaths.DeathRegister(self._name(os.getpid()))
        self._wanted = options.processes
        self._stopping = self._refused = False
        self._wake_up = Flag()  # set by a signal: the loop looks again at once
        self._restart_delay = 0.0
        self._fork_again_at = float("-inf")

    def _name(self, pid: int) -> str:
        """The name of a process of this host in attempts and workers' rows."""
        return f"{self._host}:{pid}"

    def run(self) -> None:
        """Return when every child has ended.

        After SIGTERM or SIGINT the children claim nothing more, and have `grace` seconds for their current workflow.
        The supervisor also stops when a child refuses to work, because any other child would refuse too; it then raises
        UnfitSessions at the end.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._begin_to_stop)
        signal.signal(signal.SIGCHLD, lambda *_: self._wake_up.set())
        # The children share the present objects for good: their garbage collections do not write to these pages, which
        # would give each child a copy (36 MB a child; 11 with this).
        gc.collect()
        gc.freeze()
        began, stopping_since = monotonic(), None
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
                self._wanted, stopping_since = 0, stopping_since or monotonic()
                overdue = monotonic() > stopping_since + self.options.grace + KILL_AFTER_GRACE
                # SIGTERM is sent again each time: one that arrives before the child has its handler is lost.
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
        """Keep the health file fresh, and log once a minute when children have long been without the database."""
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
        """The report on all wanted children: those that run, and those that will be forked again."""
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

    def _begin_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True
        self._wake_up.set()

    def _end_overdue(self) -> None:
        """Kill the children whose step, or on_commit hook, does not return.

        The death is written first, while the child still holds the row, so that the next worker knows that the step has
        failed. If it cannot be written now, the child may be waiting for the database as well, and is left alone.
        """
        for pid, child in self._children.items():
            status = child.slot.read()
            if status is None or child.ended_by_us or monotonic() < status.deadline + KILL_OVERDUE_AFTER:
                continue
            written = self._deaths.write(Death(self._name(pid), status, Attempt.Outcome.INTERRUPTED, "overdue"))
            if written and child.slot.read() == status:  # otherwise a step has ended or started meanwhile
                logger.warning(
                    "worker process %s is overdue in %s, of workflow %s", pid, status.step, status.workflow_id
                )
                self._kill(pid, "overdue")

    def _kill(self, pid: int, why: str) -> None:
        self._children[pid].ended_by_us = why
        os.kill(pid, signal.SIGKILL)

    def _fork(self) -> None:
        connections.close_all()
        parent, slot = os.getpid(), self._slots[-1]
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes: the existing children go on
            logger.error("no worker process can be started, it is tried again: %s", error.strerror)
            self._fork_again_at = monotonic() + MAX_RESTART_DELAY
            return
        if pid == 0:
            # Neither the parent's exit handlers nor its stack may run in the child.
            exit_code = 1
            try:
                _work(self.options, self._features, parent, slot, self._name(os.getpid()))
                exit_code = 0
            except sessions.UnfitSessions as refused:
                logger.error("%s", str(refused))
                exit_code = sessions.REFUSED
            except BaseException as error:
                logger.error("the worker failed", exc_info=error)
            finally:
                os._exit(exit_code)
        self._slots.remove(slot)
        self._children[pid] = Child(slot, forked_at=monotonic())

    def _reap(self) -> None:
        """Handle the children that have ended. A child that has drained the queue is not replaced."""
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
                self._deaths.add(deaths.death(self._name(pid), status, code, ended_by_us=child.ended_by_us))
            if code == sessions.REFUSED and not status.attempt_id:
                self._stopping = self._refused = True
                continue
            # A child with an open attempt left in the middle of a workflow, as by os._exit(0) in a step.
            if code == 0 and not status.attempt_id and (self.options.drain or self._stopping):
                self._wanted = max(0, self._wanted - 1)
                continue
            how = f"by {deaths.signal_name(-code)}" if code < 0 else f"with exit code {code}"
            logger.warning("worker process %s ended %s", pid, how)
            age = monotonic() - child.forked_at
            self._restart_delay = min(max(self._restart_delay, 0.1) * 2, MAX_RESTART_DELAY) if age < YOUNG else 0.0
            self._fork_again_at = monotonic() + self._restart_delay


def _work(options: Options, features: Sequence[Feature], parent: int, slot: Slot, name: str) -> None:
    """The life of one child: it works until its queue is drained, or a signal stops it."""
    stopping = Flag()
    give_back_at = float("inf")

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal give_back_at
        if not stopping.is_set():
            give_back_at = monotonic() + options.grace
            give_up_in(options.grace / 2)  # the other half is for writing what is left
        stopping.set()

    # Ctrl-C sends SIGINT to the supervisor and its children; a child treats it like the supervisor's SIGTERM.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    die_with(parent)  # after the child has its own handlers: the parent's set a flag that the child never reads
    lease.describe_connections(name)
    streams.open_for_steps()
    onlookers = [each for feature in features if (each := feature.onlooker())]
    forks.keep_sessions_from_forks()
    worker = Worker(
        queue=options.queue,
        only=options.only,
        name=name,
        features=features,
        stopping=stopping,
        must_stop=lambda: monotonic() > give_back_at,
        slot=slot,
        onlookers=onlookers,
    )
    worker.run(drain=options.drain)
    worker.sign_off()
    for onlooker in onlookers:
        onlooker.end()
    connections.close_all()


def die_with(parent: int) -> None:
    """Make the kernel send SIGTERM to this process when its parent dies: no child runs unsupervised. Linux only."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    except AttributeError:
        return  # no prctl: not Linux
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)  # the parent died before prctl was called
