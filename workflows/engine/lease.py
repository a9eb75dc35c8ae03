"""LEASE: how long a worker may be silent before it loses its row.

A worker sets the lease when it opens its two connections, with how soon each side notices that the other is gone.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from workflows.definition import definitions
from workflows.postgres import session_settings
from workflows.state.attempt_log import ALIAS

# Seconds by which a lease exceeds the longest step. The supervisor kills an overdue worker ten seconds after the step's
# timeout, and it should act before the server does.
MARGIN = 30.0

_BOTH = {
    # The server's kernel probes as often as ours does (keepalives in config/settings.py).
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
    # Once a second while a statement runs, the server checks that the worker is still connected.
    "client_connection_check_interval": "1000",
    # The attempt log's session is idle during each step; only the lease may end a claim.
    "idle_session_timeout": "0",
}
# The claim may hold a lock that the attempt log waits for. PostgreSQL sees no deadlock, because these are two sessions.
_ATTEMPT_LOG = {
    "lock_timeout": "5000",
    # Its few transactions lock a service's row, and their statements are milliseconds apart. A worker that is frozen
    # inside one would block all other votes, and the release of parked workflows.
    "idle_in_transaction_session_timeout": "10000",
    # Its statements are prepared: docs/internals/claim.md.
    "enable_seqscan": "off",
}


def lease_seconds() -> float:
    """How long the server lets a claim be silent, or run one statement, before it ends the claim's session.

    A healthy worker uses its claim between steps, so it is never silent for that long.
    """
    longest = max((step.longest for definition in definitions().values() for step in definition.steps), default=0.0)
    return float(settings.WORKER_LEASE_SECONDS) or longest + MARGIN


def describe_connections(worker: str) -> None:
    """Set the `options` of the connections that this process opens from now on."""
    for alias in ("default", ALIAS):
        connections[alias].settings_dict["OPTIONS"] = options(alias, worker)
    session_settings.state(session_settings.NO_TRANSACTION_TIMEOUT, "default", ALIAS)


def options(alias: str, worker: str) -> dict[str, Any]:
    """The options of a worker's connection: its name in pg_stat_activity, and when each side gives up on the other.

    The options in DATABASE_URL take precedence.
    """
    given = connections[alias].settings_dict.get("OPTIONS", {})
    ours = " ".join(f"-c {name}={value}" for name, value in _session(alias).items())
    return {
        "application_name": f"onramp {'attempt_log' if alias == ALIAS else 'claim'} {worker}",
        **given,
        "options": f"{ours} {given.get('options', '')}".strip(),
    }


def configured_parameters(wrapper: BaseDatabaseWrapper) -> list[str]:
    """The session parameters that a connection sets by its `options`; none if it was opened without them."""
    given = wrapper.settings_dict.get("OPTIONS", {}).get("options", "")
    return [name for name in _session(wrapper.alias) if f"-c {name}=" in given]


def _session(alias: str) -> dict[str, str]:
    lease = f"{lease_seconds() * 1000:.0f}"
    claim = {"idle_in_transaction_session_timeout": lease, "statement_timeout": lease}
    return _BOTH | (_ATTEMPT_LOG if alias == ALIAS else claim)
