"""SURROUNDINGS: hosts that are gone, old transactions, and an archive that fails."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import chain

from workflows.health import bounded, side_processes, workers
from workflows.models import WorkerProcess
from workflows.postgres.statements import fetch_one, fetch_row

LATELY = timedelta(hours=1)


def lost_workers(at: datetime) -> Counter[str]:
    """By host, the workers, consumers and relays that fell silent in the last hour: the host is gone."""
    of_workers = WorkerProcess.objects.filter(stopped_at=None, last_seen__gt=at - LATELY).exclude(workers.is_live(at))
    others = side_processes.silent(at).filter(last_seen__gt=at - LATELY)
    hosts = (rows.values_list("host", flat=True)[: bounded.limit()] for rows in (of_workers, others))
    return Counter(chain(*hosts))


def oldest_transaction() -> float:
    """The seconds since the oldest open transaction of this database began, as far as the role may see."""
    (seconds,) = fetch_row(
        """SELECT extract(epoch FROM max(clock_timestamp() - xact_start))::float8 FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()"""
    )
    return max(0.0, seconds or 0.0)


def archive_failing() -> float:
    """The seconds since PostgreSQL last archived WAL, if its last try failed; 0 if all is well."""
    (seconds,) = fetch_one(
        """SELECT extract(epoch FROM clock_timestamp()
                                     - coalesce(last_archived_time, stats_reset, last_failed_time))::float8
             FROM pg_stat_archiver WHERE last_failed_time > coalesce(last_archived_time, '-infinity')"""
    ) or (None,)
    return max(0.0, seconds or 0.0)
