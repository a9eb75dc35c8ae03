"""CHORES of the outbox. Workers do them, because there may be no relay, or the destination may be gone.

Events that could not be sent within GIVE_UP_AFTER are given up, and people see them. Sent or discarded events are
deleted after KEPT. The circuit of a destination closes when no event is left to try it with.
"""

from __future__ import annotations

from datetime import timedelta

from workflows.features.outages import circuits
from workflows.features.outbox.destinations import SERVICES, destinations
from workflows.features.outbox.relay import LEASE, LONGEST_DELAY
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import execute, fetch_all
from workflows.signals.waking import Slice

SLICE = 500
# A whole weekend; and as long as people ask what was sent.
GIVE_UP_AFTER, KEPT = timedelta(days=3), timedelta(days=7)

# The destinations with open events, by one index step for each.
OPEN = skip_scan("open", "workflows_outboxevent", "state = ''", "destination")
# Leaves out events that a relay may be sending just now.
_GIVE_UP = f"""
    WITH RECURSIVE {OPEN}, old AS (
        SELECT e.id FROM open CROSS JOIN LATERAL (
            SELECT id FROM workflows_outboxevent
             WHERE state = '' AND destination = open.destination
               AND since < statement_timestamp() - make_interval(secs => %(kept)s)
               AND NOT due_at BETWEEN statement_timestamp() AND statement_timestamp() + make_interval(secs => %(lease)s)
             ORDER BY since LIMIT %(size)s) e)
    UPDATE workflows_outboxevent SET state = 'given_up'
     WHERE id IN (SELECT id FROM workflows_outboxevent WHERE id IN (SELECT id FROM old) AND state = ''
                  ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)"""  # noqa: S608 (ours)
# Pages by id, which follows the age, so that no extra index is needed.
_PAGE = """
    SELECT id, state IN ('sent', 'discarded') AND settled_at < statement_timestamp() - make_interval(secs => %(kept)s),
           at > statement_timestamp() - make_interval(secs => %(kept)s)
      FROM workflows_outboxevent WHERE id > %(after)s ORDER BY id LIMIT %(size)s"""


# No relay reschedules an event for that long, so the clock was set back.
_FROM_THE_FUTURE = f"""
    WITH RECURSIVE {OPEN}
    UPDATE workflows_outboxevent e SET due_at = statement_timestamp() FROM open
     WHERE e.state = '' AND e.destination = open.destination
       AND e.due_at > statement_timestamp() + make_interval(secs => %(longest)s)"""  # noqa: S608 (ours)
# Open circuits with a due trial, or without one because the destination has left the setting.
_UNTRIED = """
    SELECT name FROM workflows_service s
     WHERE starts_with(name, %(prefix)s) AND opened_at IS NOT NULL
       AND coalesce(retry_at <= clock_timestamp(), name <> ALL (%(known)s))
       AND NOT EXISTS (SELECT FROM workflows_outboxevent e
                        WHERE e.state = '' AND e.destination = substr(s.name, length(%(prefix)s) + 1))"""


def give_up(after: int = 0) -> Slice:
    execute(_FROM_THE_FUTURE, {"longest": 2 * LONGEST_DELAY})
    kept = GIVE_UP_AFTER.total_seconds()
    changed = execute(_GIVE_UP, {"kept": kept, "lease": LEASE, "size": SLICE})
    _close_untried()
    return Slice(changed)


def _close_untried() -> None:
    """Close the circuits that have nothing left to send: only sending closes a circuit, so they would stay open."""
    known = [each.service for each in destinations().values()]
    for (name,) in fetch_all(_UNTRIED, {"prefix": SERVICES, "known": known}):
        with circuits.locked(name) as service:
            if service:
                circuits.close(service, "Nothing is left to be sent.", on_probation=True)


def delete_old(after: int = 0) -> Slice:
    """Delete a page's old events. The pages go on from the oldest event to the first that is too young."""
    found = fetch_all(_PAGE, {"kept": KEPT.total_seconds(), "after": after, "size": SLICE})
    old = [pk for pk, is_old, _ in found if is_old]
    if old:
        execute("DELETE FROM workflows_outboxevent WHERE id = ANY (%s)", [old])
    is_last = len(found) < SLICE or found[-1][2]
    return Slice(len(old), 0 if is_last else found[-1][0])
