"""CHORES of the outbox, which workers do beside their work: also where no relay runs, or a destination is gone.

What could not be sent for GIVE_UP_AFTER is given up, so that a person is told. What was sent, or discarded, is
deleted after KEPT. A destination that was down is not called so when there is nothing left to try it with.
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
# A whole weekend; and as long as somebody may ask what was sent.
GIVE_UP_AFTER, KEPT = timedelta(days=3), timedelta(days=7)

# The names of the destinations for which there is something open: as many steps down an index.
OPEN = skip_scan("open", "workflows_outboxevent", "state = ''", "destination")
# What a relay may have in hand is left alone: it may be sent just now.
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
# In the order of their numbers, which is that of their age: without an index of its own.
_PAGE = """
    SELECT id, state IN ('sent', 'discarded') AND settled_at < statement_timestamp() - make_interval(secs => %(kept)s),
           at > statement_timestamp() - make_interval(secs => %(kept)s)
      FROM workflows_outboxevent WHERE id > %(after)s ORDER BY id LIMIT %(size)s"""


# No relay puts one off for so long: the clock was set back.
_FROM_THE_FUTURE = f"""
    WITH RECURSIVE {OPEN}
    UPDATE workflows_outboxevent e SET due_at = statement_timestamp() FROM open
     WHERE e.state = '' AND e.destination = open.destination
       AND e.due_at > statement_timestamp() + make_interval(secs => %(longest)s)"""  # noqa: S608 (ours)
# Their trial is due, or never will be: they have left the setting.
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
    """Only sending closes a circuit: one with nothing left to send would be down for ever."""
    known = [each.service for each in destinations().values()]
    for (name,) in fetch_all(_UNTRIED, {"prefix": SERVICES, "known": known}):
        with circuits.locked(name) as service:
            if service:
                circuits.close(service, "Nothing is left to be sent.", on_probation=True)


def delete_old(after: int = 0) -> Slice:
    """Go from page to page, from the oldest event to the first that is younger than what is kept."""
    found = fetch_all(_PAGE, {"kept": KEPT.total_seconds(), "after": after, "size": SLICE})
    old = [pk for pk, is_old, _ in found if is_old]
    if old:
        execute("DELETE FROM workflows_outboxevent WHERE id = ANY (%s)", [old])
    is_last = len(found) < SLICE or found[-1][2]
    return Slice(len(old), 0 if is_last else found[-1][0])
