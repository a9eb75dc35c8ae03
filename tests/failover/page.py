"""THE PAGE for the night on which a primary is lost: its commands that need Patroni and etcd, typed on a real cluster.

tests/acceptance/test_lost_primary.py types the others.
"""

from __future__ import annotations

import re

from tests.failover.cluster import Cluster, Node, wait_until
from tests.runbook import Reader

IS_IT_OVER, WHO_LEADS, NOBODY_LEADS, WITHOUT_PATRONI = (
    "1. Is it over?",
    "2. Who leads?",
    "Nobody leads",
    "PostgreSQL runs without its Patroni",
)


def on_host_of(cluster: Cluster, node: Node) -> Reader:
    """Somebody on the host of a node. The harness has no systemd: whoever calls this starts Patroni."""
    places = {
        "/etc/patroni/config.yml": str(node.folder / "patroni.json"),
        "/var/lib/postgresql/15/main": str(node.data),
        "db1 db2 db3": " ".join(each.address for each in cluster.nodes),
        "systemctl start patroni": "true",
    }
    return Reader("how-to/lost-primary.md", cluster.folder, places)


def require_that_it_is_over(cluster: Cluster) -> None:
    """Wait until `patronictl list` shows on the primary's host what the page wants to see there, and etcd is well."""
    members = ["Leader", "Replica", "Sync Standby"] if cluster.strict else ["Leader", "Replica", "Replica"]

    reader = on_host_of(cluster, cluster.primary())

    def is_over() -> bool:
        rows = re.findall(
            r"^\| node\d +\| \S+ +\| (\w[\w ]*?) +\| (running|streaming) +\| +(\d+) \|", reader.types(WHO_LEADS), re.M
        )
        well = reader.types(NOBODY_LEADS).count('"health":"true"')
        return sorted(role for role, _, _ in rows) == members and len({each[2] for each in rows}) == 1 and well == 3

    wait_until(is_over, seconds=30, what=lambda: reader.types(WHO_LEADS))


def is_stored(cluster: Cluster) -> bool:
    """Whether the page's own test says that submissions are stored."""
    reader = on_host_of(cluster, cluster.primary())
    reader.environ["DATABASE_URL"] = cluster.url(haproxy=True)
    (test,) = re.findall(r"^# (timeout 10 psql .*)$", reader.blocks("console", IS_IT_OVER)[0], re.M)
    return "not stored" not in reader.runs(test)
