"""FAULTS: what is done to the primary, and how its node is made whole again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.failover import network, page
from tests.failover.cluster import Cluster, Node, wait_until

# Seconds that a stopped or cut-off node stays so after another one leads: it comes back believing that it still does.
AWAY = 5.0
# In asynchronous mode the standbys get nothing for so long before a fault. After three they would connect anew.
BEHIND = 2.0


@dataclass(frozen=True)
class Fault:
    """`strike` is done to the primary. `mend` makes it whole. `elections`: how often another node takes over.

    `loses`: what no standby has got by then is lost, unless it was waited for. `help` is what somebody has to do, when
    processes find the primary by several hosts and stand still.
    """

    name: str
    says: str
    strike: Callable[[Cluster, Node], None]
    mend: Callable[[Cluster, Node], None]
    elections: int = 1
    loses: bool = True
    help: Callable[[Cluster, Node], None] | None = None


def fall_behind(node: Node) -> None:
    """Let the standbys get nothing more: what is committed meanwhile is lost when the primary is struck."""
    with node.connect() as database:
        senders = database.execute("SELECT pid FROM pg_stat_replication").fetchall()
    node.signal(signal.SIGSTOP, *(pid for (pid,) in senders))
    time.sleep(BEHIND)


def _switch_over(cluster: Cluster, node: Node) -> None:
    status, text = node.asks("switchover", {"leader": node.name}, seconds=60)
    assert status == 200, f"Patroni did not switch over: {status} {text}"


def _nothing(cluster: Cluster, node: Node) -> None: ...


def _kill(cluster: Cluster, node: Node) -> None:
    """Patroni first, so that it cannot notice."""
    patroni = node.patroni
    assert patroni is not None
    patroni.kill()
    node.signal(signal.SIGKILL)
    patroni.wait()


def _start(cluster: Cluster, node: Node) -> None:
    """Start its Patroni again. A run of PostgreSQL that was killed has left its shared memory; a new one cleans up."""
    assert node.patroni is not None
    if node.patroni.poll() is not None:
        cluster.start(node)


def _kill_postgresql(cluster: Cluster, node: Node) -> None:
    assert node.patroni is not None
    node.signal(signal.SIGKILL, *(pid for pid in node.pids() if pid != node.patroni.pid))


def _kill_patroni(cluster: Cluster, node: Node) -> None:
    assert node.patroni is not None
    node.patroni.kill()
    node.patroni.wait()


def _stop_postgresql(cluster: Cluster, node: Node) -> None:
    page.on_host_of(cluster, node).types(page.WITHOUT_PATRONI)


def _stop(cluster: Cluster, node: Node) -> None:
    node.signal(signal.SIGSTOP)


def _go_on(cluster: Cluster, node: Node) -> None:
    time.sleep(AWAY)
    node.signal(signal.SIGCONT)


def _cut_off(cluster: Cluster, node: Node) -> None:
    """Nothing arrives any more, and nobody is told: no RST, no FIN."""
    network.run("ip", "link", "set", network.cable(node.number), "down")
    node.signal(signal.SIGCONT)  # what was sent late arrives nowhere now


def _plug_in(cluster: Cluster, node: Node) -> None:
    time.sleep(AWAY)
    network.run("ip", "link", "set", network.cable(node.number), "up")


def _fill_disk(cluster: Cluster, node: Node) -> None:
    with (node.data.parent / "full").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 1_000_000)
        except OSError:
            pass


def _fill_disk_for_a_while(cluster: Cluster, node: Node) -> None:
    """PostgreSQL refuses to write, but lives, so Patroni lets it lead: somebody has to free the disk."""
    _fill_disk(cluster, node)
    wait_until(lambda: not page.is_stored(cluster), seconds=AWAY, what=lambda: "the page says that nothing is stored")
    time.sleep(AWAY)
    (node.data.parent / "full").unlink()


def _kill_two(cluster: Cluster, node: Node) -> None:
    """The second as soon as it leads and has a standby; the first is still away."""
    _kill(cluster, node)

    def has_followed() -> bool:
        following = {each["role"] for each in cluster.members() if each["state"] in ("running", "streaming")}
        return (
            following == {"leader", "sync_standby" if cluster.strict else "replica"} and cluster.primary() is not node
        )

    wait_until(has_followed, seconds=90, what=lambda: f"the second leads: {cluster.members()}")
    second = cluster.primary()
    _kill(cluster, second)
    _start(cluster, node)  # with one node alone, nothing could be synchronous


def _start_all(cluster: Cluster, node: Node) -> None:
    for each in cluster.nodes:
        _start(cluster, each)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("switchover", "an administrator lets another node lead", _switch_over, _nothing, loses=False),
        Fault("kill", "Patroni and PostgreSQL are killed", _kill, _start),
        Fault("postgresql", "PostgreSQL alone is killed", _kill_postgresql, _nothing),
        Fault(
            "patroni",
            "Patroni alone is killed; its PostgreSQL goes on, believing that it leads",
            _kill_patroni,
            _start,
            loses=False,
            help=_stop_postgresql,
        ),
        Fault("stop", "both are stopped, and go on later, believing that they lead", _stop, _go_on),
        Fault("cut", "the node is cut off: nothing arrives, and nobody is told", _cut_off, _plug_in),
        Fault("full", "its disk is full for a while; nobody takes over", _fill_disk_for_a_while, _nothing, 0, False),
        Fault("two", "a second primary is killed while the first is away", _kill_two, _start_all, elections=2),
    )
}
