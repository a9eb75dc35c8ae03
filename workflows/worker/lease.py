"""LEASE: what a worker asks of its two connections, so that each end soon learns when the other is gone.

The row's lock ends with its connection. A killed worker's kernel closes that at once; a host that vanished closes
nothing, a worker that is stopped holds on to it, and a server in the middle of a long statement does not look.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from workflows.definition import definitions
from workflows.journal import ALIAS

# Past the longest step. The supervisor ends an overdue one ten seconds after its timeout, and is to come first.
MARGIN = 30.0

# A peer that is silent for 10 s is asked three times, 5 s apart: gone after 25 s. In milliseconds for data in flight.
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
_BOTH = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
    # While a statement runs: whether anybody still waits for its result.
    "client_connection_check_interval": "1000",
    # Each statement of the claim must see what the journal has committed, whatever the server's default is.
    "default_transaction_isolation": r"read\ committed",
}
# The claim may hold what the journal waits for, and no deadlock detector sees both: they are two sessions.
_JOURNAL = {
    "lock_timeout": "5000",
    # Its statements are prepared. Planned while a table is small, they would read it from end to end ever after; and
    # each of them finds its rows by an index.
    "enable_seqscan": "off",
}


def lease_seconds() -> float:
    """How long the server lets a claim be silent, or at work on one statement, before it ends it.

    A worker that hangs, is stopped, or is cut off keeps its row no longer than this; a worker that lives is never as
    long without a word, for it speaks between steps. What the server ended can never commit.
    """
    longest = max((step.longest for definition in definitions().values() for step in definition.steps), default=0.0)
    return float(settings.WORKER_LEASE_SECONDS) or longest + MARGIN


def describe_connections(worker: str) -> None:
    """Have this process's connections, from now on, opened with `options`."""
    for alias in ("default", ALIAS):
        connections[alias].settings_dict["OPTIONS"] = options(alias, worker)


def options(alias: str, worker: str) -> dict[str, Any]:
    """What a worker opens this connection with: its name in pg_stat_activity, and when each end gives the other up.

    What DATABASE_URL says beats what stands here.
    """
    given = connections[alias].settings_dict.get("OPTIONS", {})
    ours = " ".join(f"-c {name}={value}" for name, value in _session(alias).items())
    return {
        "application_name": f"onramp {'journal' if alias == ALIAS else 'claim'} {worker}",
        **_KEEPALIVES,
        **given,
        "options": f"{ours} {given.get('options', '')}".strip(),
    }


def configured_parameters(wrapper: BaseDatabaseWrapper) -> list[str]:
    """What a connection asks of its session by `options`; nothing where it was opened without."""
    given = wrapper.settings_dict.get("OPTIONS", {}).get("options", "")
    return [name for name in _session(wrapper.alias) if f"-c {name}=" in given]


def _session(alias: str) -> dict[str, str]:
    lease = f"{lease_seconds() * 1000:.0f}"
    claim = {"idle_in_transaction_session_timeout": lease, "statement_timeout": lease}
    return _BOTH | (_JOURNAL if alias == ALIAS else claim)
