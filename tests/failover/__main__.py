"""python -m tests.failover: strikes the primary of a Patroni cluster under load, and says what was lost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import mkdtemp

from tests.benchmark.command import at_least
from tests.commands import complain, exit_in_order, parser
from tests.failover import page
from tests.failover.cluster import DISK, TO_A_MEGABYTE, Cluster, Node, Void, require, wait_until
from tests.failover.faults import FAULTS, Fault, fall_behind
from tests.failover.network import Missing
from tests.failover.system import WORKERS, System

DESCRIPTION = f"""\
Three PostgreSQL under Patroni, with etcd, each in a network namespace; intake, console,
workers, relay and consumer on them, and a client that sends all the while. Each fault
strikes the primary, as often as --times says; afterwards the commands of the page for the
night must show that it is over. At the end nothing that was answered with 202 may be
missing, no call be made twice, no event be lost or told without its cause, and nothing be
counted twice. With --asynchronous the primary is struck when its standbys are two seconds
behind: manage.py reconcile must name each call that is lost, and all must be well when the
clients have sent again what was promised and is lost.

faults:
{"".join(f"  {fault.name:11} {fault.says}{chr(10)}" for fault in FAULTS.values())}
It needs root, and Debian's packages patroni, etcd-server, haproxy and postgresql-15. The
exit code is 1 when something was lost or doubled, 3 when an election came without a
fault of ours, so that the run shows nothing, and 77 when the machine lacks something. Ctrl-C ends the
faults: what came of those until then is told. A second one ends everything at once.
"""

EXAMPLES = (
    "make test-failover                                            each fault three times (half an hour)",
    'make test-failover ARGS="--faults kill --times 1"             one fault, once (two minutes)',
    'make test-failover ARGS="--by hosts"                          without HAProxy: several hosts in DATABASE_URL',
    'make test-failover ARGS="--submissions 10000 --light 4"       24 failovers, 417 submissions each (an hour)',
)
LACKS, VOID = 77, 3
PROCESSES = ("worker", "intake", "console", "relay", "consumer")
# Seconds: for another node to take writes, for a process to work on it, until it is helped, of load before each fault,
# and for the submissions of a fault to be promised.
TO_LEAD, TO_WORK, TO_HELP, LOAD, TO_SEND = 120.0, 90.0, 20.0, 6.0, 900.0


@dataclass
class Seen:
    """Seconds: until the new primary took writes; then until each process worked; the longest time without a 202."""

    fault: str
    led: float
    worked: dict[str, float]
    refused: float


def main() -> int:
    asked = _parser().parse_args()
    names = [name for name in asked.faults.split(",") if name]
    if unknown := set(names) - set(FAULTS):
        return complain(f"There is no fault {', '.join(sorted(unknown))}: {', '.join(FAULTS)}.", 2)
    os.environ |= {"DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "1"}
    signal.signal(signal.SIGTERM, exit_in_order)
    signal.signal(signal.SIGHUP, exit_in_order)
    try:
        require()
        return _run(asked, [FAULTS[name] for name in names])
    except Missing as error:
        return complain(str(error), LACKS)
    except Void as error:
        return complain(f"Void: {error}", VOID)
    except KeyboardInterrupt:
        return complain("Interrupted. Everything is ended.", 130)
    except AssertionError as error:
        return complain(f"The cluster or Onramp does not do what it should: {error}")


def _parser() -> ArgumentParser:
    asks = parser("tests.failover", DESCRIPTION, *EXAMPLES)
    asks.add_argument("--faults", default=",".join(FAULTS), help="which ones, by commas (all)")
    asks.add_argument("--times", type=at_least(1), default=3, help="how often each strikes (3)")
    asks.add_argument("--by", choices=("haproxy", "hosts"), default="haproxy", help="how processes find the primary")
    asks.add_argument(
        "--asynchronous", action="store_true", help="no standby is waited for: what is lost must be named"
    )
    asks.add_argument("--submissions", type=int, default=0, help="send so many at least, spread over the faults (0)")
    asks.add_argument(
        "--light", type=int, default=0, help="after each submission, so many that are refused at once (0)"
    )
    asks.add_argument("--seed", type=int, default=1, help="of the submissions (1)")
    asks.add_argument("--keep", action="store_true", help="keep the logs, and say where")
    return asks


def _run(asked: Namespace, faults: list[Fault]) -> int:
    folder = Path(mkdtemp(prefix="onramp-failover-"))
    disk = DISK + asked.submissions // TO_A_MEGABYTE
    cluster = Cluster(folder, strict=not asked.asynchronous, disk=disk)
    try:
        cluster.begin()
        _say(f"{cluster.primary().name} leads; by {asked.by}; {'strict' if cluster.strict else 'asynchronous'}")
        with System(cluster, folder, haproxy=asked.by == "haproxy", seed=asked.seed, light=asked.light) as system:
            seen: list[Seen] = []
            stopped = _strike_all(system, faults * asked.times, asked.submissions, seen)
            system.finish()
            wrongs = [] if cluster.strict else _recover(system)
            wrongs += system.wrongs() + system.unnamed()[1]
            _say(f"{len(system.client.accepted)} submissions answered with 202; refused: {dict(system.client.refused)}")
            _say(f"{len(system.client.queued)} by Kafka")
        _print(seen)
        for line in wrongs[:50]:
            _say(line)
        _say(f"{len(wrongs)} wrongs" if wrongs else "nothing was lost or doubled")
        if stopped is not None:
            raise stopped
        return int(bool(wrongs))
    finally:
        cluster.end()
        if asked.keep:
            _say(f"The logs are in {folder}.")
        else:
            shutil.rmtree(folder)


def _recover(system: System) -> list[str]:
    """What asynchronous mode has lost must be named; then the clients send that again. Returns what was not named."""
    lost, (named, wrongs) = system.lost(), system.unnamed()
    _say(f"{len(lost)} submissions that were promised are lost; reconcile names {named} calls")
    system.client.send_again(lost)
    system.finish()
    return wrongs


def _strike_all(system: System, strikes: list[Fault], submissions: int, seen: list[Seen]) -> BaseException | None:
    """Strike, and add to `seen`. Returns what ended it early: what came of the faults before is told all the same."""
    try:
        for number, fault in enumerate(strikes, start=1):
            seen.append(_strike(system, fault))
            _send(system, submissions * number // len(strikes))
            system.read_topic()
    except (AssertionError, Void, KeyboardInterrupt) as error:
        _say(f"stopped after {len(seen)} of {len(strikes)} faults: {error}")
        return error
    return None


def _send(system: System, submissions: int) -> None:
    """Go on until so many were promised."""
    client = system.client
    wait_until(
        lambda: client.promised() >= submissions, seconds=TO_SEND, what=lambda: f"{client.promised()} are promised"
    )
    _say(f"{client.promised()} submissions are promised")


def _strike(system: System, fault: Fault) -> Seen:
    cluster = system.cluster
    time.sleep(LOAD)
    cluster.require_no_election()
    primary, timeline = cluster.primary(), cluster.timeline
    if fault.loses and not cluster.strict:
        fall_behind(primary)
    began = time.time()
    fault.strike(cluster, primary)
    since, but = (began, primary) if fault.elections == 1 else (time.time(), None)
    led = wait_until(
        lambda: _finite(system.first_commit(since, but=but)),
        seconds=TO_LEAD,
        what=lambda: f"another node takes writes after {fault.name}",
    )
    worked = _wait_for_work(system, fault, primary, led)
    fault.mend(cluster, primary)
    cluster.settle()
    page.require_that_it_is_over(cluster)
    if cluster.timeline - timeline != fault.elections:
        raise Void(f"{fault.name} has led to timeline {cluster.timeline}, from {timeline}.")
    after = {name: at - led for name, at in worked.items()}
    seen = Seen(fault.name, led - began, after, system.client.longest_refusal(began - 1))
    figures = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in after.items())
    _say(f"{fault.name}: led after {seen.led:.1f} s; then {figures}; longest without a 202: {seen.refused:.1f} s")
    return seen


def _wait_for_work(system: System, fault: Fault, primary: Node, led: float) -> dict[str, float]:
    """When each process first worked after that moment; if they stand still where that is told, they are helped."""

    def wait(seconds: float) -> dict[str, float]:
        return wait_until(
            lambda: _worked(system, led), seconds=seconds, what=lambda: f"every process works after {fault.name}"
        )

    if fault.help is not None and not system.by_haproxy:
        try:
            return wait(TO_HELP)
        except AssertionError:
            _say(f"{fault.name}: not each process works {time.time() - led:.0f} s after another node led; it is helped")
            fault.help(system.cluster, primary)
    return wait(TO_WORK)


def _finite(at: float) -> float | None:
    return at if at < float("inf") else None


def _worked(system: System, led: float) -> dict[str, float] | None:
    """When each process first worked after that moment; None until all have."""
    attempts = system.first_attempts(led)
    intake = min((at for at in list(system.client.accepted.values()) if at > led), default=None)
    others = (_finite(system.probes["console"].first(led)), system.first_sent(led), system.first_taken(led))
    found = (max(attempts) if len(attempts) == WORKERS else None, intake, *others)
    return {name: at for name, at in zip(PROCESSES, found, strict=True) if at} if all(found) else None


def _print(seen: list[Seen]) -> None:
    """A table: median and worst seconds."""
    columns = ("leads", *PROCESSES, "no 202")
    _say("seconds, median and worst:\n" + f"{'fault':11} {'times':>5}" + "".join(f"{name:>15}" for name in columns))
    for name in dict.fromkeys(each.fault for each in seen):
        rows = [(each.led, *each.worked.values(), each.refused) for each in seen if each.fault == name]
        figures = "".join(f"{median(column):9.1f}{max(column):6.1f}" for column in zip(*rows, strict=True))
        sys.stdout.write(f"{name:11} {len(rows):5}{figures}\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
