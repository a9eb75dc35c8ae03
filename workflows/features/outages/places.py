"""PLACES: of a service with a cap, a call takes one of so many places, or is not made.

A place is an advisory lock of the worker's attempt log: it ends with the call, with the worker, or with its host, and
no row counts it. A workflow that finds none is parked, so a slow service has its share of the workers and not all.
"""

from __future__ import annotations

from time import sleep

from workflows.models import Pace
from workflows.models.pace import Key, Scope
from workflows.postgres.places import taking
from workflows.postgres.statements import fetch_one
from workflows.state import attempt_log

# A call waits for a place so often, for so many seconds: most calls of a fast service find one in between.
TRIES, TRY_EVERY = 5, 0.04


_TAKE = taking("pg_try_advisory_lock")
_LEAVE = "SELECT pg_advisory_unlock(hashtextextended(%(key)s::text, %(place)s::bigint))"
_TAKEN = """
    SELECT count(*) FROM pg_locks
     WHERE locktype = 'advisory' AND granted AND objsubid = 1
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND (classid::bigint << 32 | objid::bigint) IN (
               SELECT hashtextextended(%(key)s::text, n) FROM generate_series(1, %(at_once)s::int) n)"""


def take(service: str, at_once: int, *, patient: bool) -> int:
    """The number of a place that is taken now; 0 if all stay taken. Not `patient`, it is tried once."""
    for attempt in range(TRIES if patient else 1):
        if attempt:
            sleep(TRY_EVERY)
        for (place,) in attempt_log.execute(_TAKE, {"key": _key(service), "at_once": at_once}):
            return int(place)
    return 0


def leave(service: str, place: int) -> None:
    attempt_log.execute(_LEAVE, {"key": _key(service), "place": place})


def left(service: str) -> int | None:
    """How many places of a service nobody has just now; None if it has no cap."""
    pace = Pace.objects.filter(pk=_key(service)).first()
    if pace is None or pace.at_once is None:
        return None
    (taken,) = fetch_one(_TAKEN, {"key": _key(service), "at_once": pace.at_once}) or (0,)
    return max(0, pace.at_once - int(taken))


def _key(service: str) -> str:
    return str(Key(Scope.SERVICE, service))
