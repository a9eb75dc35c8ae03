"""THE NETWORK: a bridge, and a namespace for each node. What runs in a namespace is ours, and is ended by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

BRIDGE, PREFIX = "onramp-fo", "10.213.77"
NODES = (1, 2, 3)


class Missing(Exception):
    """The machine lacks what the cluster needs; the message says what to do."""


def namespace(number: int) -> str:
    return f"{BRIDGE}-{number}"


def address(number: int) -> str:
    return f"{PREFIX}.1{number}"


def cable(number: int) -> str:
    """The bridge's end of a node's cable."""
    return f"{BRIDGE}{number}"


def build() -> None:
    """Make the network anew. Raises Missing when the kernel does not let us."""
    sweep()
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "addr", "add", f"{PREFIX}.1/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    for number in NODES:
        name, outside, inside = namespace(number), cable(number), f"{cable(number)}i"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        run("ip", "link", "set", inside, "netns", name)
        run("ip", "link", "set", outside, "master", BRIDGE, "up")
        run("ip", "-n", name, "addr", "add", f"{address(number)}/24", "dev", inside)
        run("ip", "-n", name, "link", "set", inside, "up")
        run("ip", "-n", name, "link", "set", "lo", "up")


def sweep() -> None:
    """End what runs in our namespaces, also what a killed run has left, and take the network away."""
    for number in NODES:
        give_up_at = time.monotonic() + 10
        while (pids := pids_in(namespace(number))) and time.monotonic() < give_up_at:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        run("ip", "netns", "del", namespace(number), check=False)
        run("ip", "link", "del", cable(number), check=False)
    run("ip", "link", "del", BRIDGE, check=False)


def pids_in(name: str) -> list[int]:
    found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    return list(map(int, found.stdout.split()))


def other_run() -> int | None:
    """The process of another run that is under way."""
    for pid in (pid for number in NODES for pid in pids_in(namespace(number))):
        with suppress(OSError, IndexError):
            parent = int(Path(f"/proc/{pid}/status").read_text().partition("PPid:")[2].split()[0])
            if parent != os.getpid() and "tests.failover" in Path(f"/proc/{parent}/cmdline").read_text():
                return parent
    return None


def run(*command: str, check: bool = True) -> int:
    """Run it; return its exit code. With `check`, raises Missing when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise Missing(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.returncode
