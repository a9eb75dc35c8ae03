"""SURROUNDINGS: hosts that are gone, old transactions, an archive that fails, and standbys."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import NamedTuple

from workflows.engine.lease import lease_seconds
from workflows.engine.side_process_heartbeat import SILENT_AFTER
from workflows.health import bounded
from workflows.postgres.often import fetch_all, fetch_row

LATELY = timedelta(hours=1)


def lost_workers() -> Counter[str]:
    """By host, the workers, consumers and relays that fell silent in the last hour: the host is gone."""
    found = fetch_all(
        """SELECT host, count(*) FROM (
               (SELECT host FROM workflows_workerprocess
                 WHERE stopped_at IS NULL AND last_seen > statement_timestamp() - %(lately)s::interval
                   AND last_seen < statement_timestamp() - make_interval(secs => %(lease)s) LIMIT %(limit)s)
                UNION ALL
               (SELECT host FROM workflows_sideprocess s
                 WHERE stopped_at IS NULL AND last_seen > statement_timestamp() - %(lately)s::interval
                   AND last_seen < statement_timestamp() - make_interval(secs => %(silent)s)
                   AND NOT EXISTS (SELECT FROM workflows_sideprocess o
                                    WHERE (o.host, o.kind, o.takes) = (s.host, s.kind, s.takes)
                                      AND o.stopped_at IS NULL
                                      AND o.last_seen >= statement_timestamp() - make_interval(secs => %(silent)s))
                 LIMIT %(limit)s)) lost
            GROUP BY host""",
        {"lately": LATELY, "lease": lease_seconds(), "silent": SILENT_AFTER, "limit": bounded.limit()},
    )
    return Counter(dict(found))


class Server(NamedTuple):
    """Two times in seconds: since the oldest open transaction of this database began, as far as the role may see; and
    since PostgreSQL last archived WAL, if its last try failed. 0 if all is well. And how many standbys follow it."""

    oldest_transaction: float
    archive_failing: float
    standbys: int


def server() -> Server:
    # A role without pg_monitor does not see the state of a standby, but that one is there.
    transaction, archive, standbys = fetch_row(
        """SELECT (SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
                    WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()),
                  (SELECT extract(epoch FROM clock_timestamp()
                                             - coalesce(last_archived_time, stats_reset, last_failed_time))::float8
                     FROM pg_stat_archiver WHERE last_failed_time > coalesce(last_archived_time, '-infinity')),
                  (SELECT count(*) FROM pg_stat_replication WHERE coalesce(state, 'streaming') = 'streaming')"""
    )
    return Server(max(0.0, transaction or 0.0), max(0.0, archive or 0.0), standbys)
