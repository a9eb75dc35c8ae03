"""RELAY: takes a destination's due events, sends them, and marks the outcome. One thread for each destination.

    take (short: due_at becomes the end of the lease) -> send (no transaction) -> mark, if it still is ours

If a relay dies, others take its events when the lease is over. If it was stopped for longer than the lease, it sends
none of its old events, and marks none that another relay has taken since: `tries` shows that. A workflow's events are
taken in order: a later one waits until the earlier is sent, or discarded by a person.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from django.db import connections
from django.db.models import Q

from workflows import failpoints
from workflows.engine import backoff
from workflows.features.outages import circuits
from workflows.features.outbox.destinations import OF_NOTICES, Destination
from workflows.features.outbox.sending import Outcome, Taken
from workflows.models import CircuitEvent, Service
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.statements import fetch_all, literals
from workflows.sealing.envelopes import KeyLacking, Unreadable

if TYPE_CHECKING:
    from workflows.features.traces.spans import Spans

logger = logging.getLogger(__name__)

# Seconds: longer than the last possible start of a send plus its duration (16). If a relay dies, its events wait that
# long.
LEASE, LAST_BEGIN = 30.0, 10.0
# Seconds to sleep when nothing was due.
POLL = 1.0
# Seconds until an event is tried again: doubling, with jitter. A circuit handles receivers that are down, so these are
# for failures of single events.
FIRST_DELAY, LONGEST_DELAY, JITTER = 5.0, 3600.0, 0.2
# The event's key is lost, for example: it is given up at once, for a person.
UNREADABLE = Outcome("what it says cannot be read")
KEY_LACKING = Outcome("DATA_KEYS of the relay lacks its key")


class Sender(Protocol):
    """Sends `at_once` events to a destination: see `workflows.features.outbox.sending`."""

    at_once: int

    def send(self, events: Sequence[Taken], must_not_begin: Callable[[], bool]) -> Sequence[Outcome]: ...

    def close(self) -> None: ...


# An unsent event holds back the later ones of its workflow. Notices hold back none and wait for none: a refused one
# must not keep a question about money from people. `even_later`, for a trial, also takes events with a later time, but
# none that another relay may have.
_TAKE = f"""
    WITH due AS (
        SELECT e.id, e.workflow_id FROM workflows_outboxevent e
         WHERE e.destination = %(destination)s AND e.state = ''
           AND (e.due_at <= statement_timestamp()
                OR %(even_later)s AND e.due_at > statement_timestamp() + make_interval(secs => %(lease)s))
           AND (e.topic IN {literals(OF_NOTICES)} OR NOT EXISTS (
               SELECT FROM workflows_outboxevent earlier
                WHERE earlier.workflow_id = e.workflow_id AND earlier.destination = e.destination
                  AND earlier.topic NOT IN {literals(OF_NOTICES)}
                  AND earlier.id < e.id AND earlier.state IN ('', 'given_up')))
         ORDER BY e.due_at, e.id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE workflows_outboxevent e
       SET tries = e.tries + 1, due_at = clock_timestamp() + make_interval(secs => %(lease)s)
      FROM due LEFT JOIN workflows_workflow w ON w.id = due.workflow_id
     WHERE e.id = due.id AND (due.workflow_id IS NULL OR w.id IS NOT NULL)
    RETURNING e.id, e.tries, e.workflow_id, e.event_id, e.topic, e.at, w.idempotency_key, e.body::text,
              coalesce(w.workflow_type, ''), coalesce(w.given_request_id, ''), coalesce(w.traceparent, '')"""  # noqa: S608 (ours)

# `event_id` is compared because a server that took over, without the last moments, may reuse ids. An event that was
# given up but did arrive becomes sent. What a person discarded or another relay took stays as it is.
_MARK = """
    UPDATE workflows_outboxevent e
       SET state = CASE met.error WHEN '' THEN 'sent' WHEN %(unreadable)s THEN 'given_up' ELSE e.state END,
           settled_at = CASE WHEN met.error = '' THEN clock_timestamp() END,
           body = CASE WHEN met.error = '' THEN '{}' ELSE e.body END,
           due_at = CASE WHEN met.error = '' THEN e.due_at ELSE clock_timestamp() + make_interval(secs => met.wait) END,
           error = met.error
      FROM unnest(%(ids)s::bigint[], %(event_ids)s::uuid[], %(tries)s::int[], %(errors)s::text[], %(waits)s::float8[])
           AS met (id, event_id, tries, error, wait)
     WHERE e.id = met.id AND e.event_id = met.event_id AND e.tries = met.tries AND e.state IN ('', 'given_up')
    RETURNING e.id"""
_GIVE_BACK = """
    UPDATE workflows_outboxevent e SET due_at = clock_timestamp()
      FROM unnest(%(ids)s::bigint[], %(event_ids)s::uuid[], %(tries)s::int[]) AS ours (id, event_id, tries)
     WHERE e.id = ours.id AND e.event_id = ours.event_id AND e.tries = ours.tries AND e.state = ''
    RETURNING e.id"""
# The destination answers again, so failed events need not wait. Leaves out events that a relay may have in hand.
_MAKE_DUE = """
    UPDATE workflows_outboxevent SET due_at = statement_timestamp()
     WHERE destination = %(destination)s AND state = ''
       AND due_at > statement_timestamp() + make_interval(secs => %(lease)s)
    RETURNING id"""


class Relay:
    """Sends a destination's events in one thread, until `stopping` is set."""

    def __init__(
        self,
        destination: Destination,
        sender: Sender,
        stopping: Event,
        on_sent: Callable[[], object] = lambda: None,
        *,
        spans: Spans | None = None,
    ) -> None:
        self.destination, self._sender, self._stopping = destination, sender, stopping
        self._on_sent, self._spans = on_sent, spans

    def run(self, *, drain: bool = False) -> None:
        """Send due events until stopped; with `drain`, until none is due."""
        delay = backoff.Delay(POLL / 4, POLL)
        try:
            while not self._stopping.is_set():
                try:
                    busy = self.send_next()
                except DatabaseUnavailable:
                    self._stopping.wait(delay.next())
                    continue
                except Exception as error:  # a defect of ours must not end the thread; its text may quote an event
                    logger.error("%s: the relay failed", self.destination.name, exc_info=error)
                    self._stopping.wait(delay.next())
                    continue
                delay.reset()
                if drain and not busy:
                    return
                if not busy:
                    self._stopping.wait(POLL)
        finally:
            self._sender.close()
            connections.close_all()

    def send_next(self) -> bool:
        """Send the next due events. False when there are none, or the destination may not be called now."""
        allowed, is_trial = self._allowed()
        if not allowed:
            return False
        began = monotonic()
        taken = [Taken(*row) for row in self._run(_TAKE, limit=allowed, even_later=is_trial)]
        if not taken:
            return False
        taken.sort()
        taken, unread = _opened(taken)
        if self._spans:
            taken = [self._traced(event, self._spans) for event in taken]
        failpoints.reach("after_take", "event")
        send_began = monotonic()

        def must_not_begin() -> bool:
            return self._stopping.is_set() or monotonic() > began + LAST_BEGIN

        outcomes = list(zip(taken, self._sender.send(taken, must_not_begin), strict=True))
        failpoints.reach("after_send", "event")
        tried = [(event, outcome) for event, outcome in outcomes if not outcome.is_untried]
        self._mark([*tried, *unread])
        if any(not outcome.error for _, outcome in tried):
            self._on_sent()
        if untried := [event for event, outcome in outcomes if outcome.is_untried]:
            self._run(_GIVE_BACK, **_named(untried))
        self._vote([(event, outcome) for event, outcome in tried if outcome.is_service])
        if self._spans:
            for event, outcome in tried:
                self._record(event, outcome, send_began, self._spans)
        return True

    def _record(self, event: Taken, outcome: Outcome, began: float, spans: Spans) -> None:
        if event.trace is None:
            return
        facts: dict[str, str | int] = {
            "onramp.workflow_id": event.workflow_id or 0,
            "onramp.destination": self.destination.name,
            "onramp.topic": event.topic,
            "messaging.message.id": str(event.event_id),
        }
        topic = self.destination.kafka
        if topic:
            facts |= {"messaging.system": "kafka", "messaging.destination.name": topic}
        to, seconds = topic or self.destination.name, outcome.seconds or monotonic() - began
        spans.record_sending(event.trace, to, facts, error=outcome.error, began=began, seconds=seconds)

    def _traced(self, event: Taken, spans: Spans) -> Taken:
        subject = event.subject or event.event_id
        trace = spans.trace_of(subject, event.workflow_type, event.request_id or subject.hex, event.traceparent)
        return event._replace(trace=trace)

    def _mark(self, tried: Sequence[tuple[Taken, Outcome]]) -> None:
        marked = self._run(
            _MARK,
            **_named([event for event, _ in tried]),
            errors=[outcome.error[:100] for _, outcome in tried],
            waits=[_delay(event, outcome) for event, outcome in tried],
            unreadable=UNREADABLE.error,
        )
        if len(marked) < len(tried):
            logger.info("%s: %s events were another's by then", self.destination.name, len(tried) - len(marked))
        failed = [outcome.error for _, outcome in tried if outcome.error]
        if failed:
            logger.info("%s: %s of %s not sent: %s", self.destination.name, len(failed), len(tried), failed[0])

    # --- The circuit ------------------------------------------------------------------------------

    def _allowed(self) -> tuple[int, bool]:
        """How many events may be taken now, and whether they are the trial of a destination that was unavailable."""

        def look() -> tuple[int, bool]:
            if not Service.objects.filter(name=self.destination.service, opened_at__isnull=False).exists():
                return self._sender.at_once, False
            with circuits.locked(self.destination.service) as service:
                if service is None or not circuits.take_trial(service):
                    return 0, False
                is_trial = service.opened_at is not None
                return (1, True) if is_trial else (self._sender.at_once, False)

        return query_in_time(look)

    def _vote(self, tried: Sequence[tuple[Taken, Outcome]]) -> None:
        """Vote on the circuit: each unsent event counts. Failures of one workflow alone are no outage."""
        failed = [event.workflow_id or 0 for event, outcome in tried if outcome.error]
        sent = len(tried) - len(failed)

        def vote() -> None:
            not_closed = Service.objects.filter(Q(since__isnull=False) | Q(opened_at__isnull=False))
            if not failed and not not_closed.filter(name=self.destination.service).exists():
                return
            with circuits.locked(self.destination.service, wait=True) as service:
                assert service is not None
                was_open = service.opened_at is not None
                if any(outcome.is_gone for _, outcome in tried):
                    _disable(service)
                    return
                answered = sent > 0 if was_open else len(failed) < circuits.TO_ONE_ANSWER * sent
                suspect = next((each for each in failed if each not in service.suspects), (failed or [0])[0])
                circuits.vote(service, unavailable=bool(failed), answered=answered, workflow_id=suspect)
                if was_open and service.opened_at is None:
                    fetch_all(_MAKE_DUE, {"destination": self.destination.name, "lease": LEASE})

        if tried:
            query_in_time(vote)

    def _run(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return query_in_time(
            lambda: fetch_all(sql, {"destination": self.destination.name, "lease": LEASE, **parameters})
        )


def _named(events: Sequence[Taken]) -> dict[str, list[Any]]:
    """The parameters that find these events' rows, and tell whether they still are this relay's."""
    return {
        "ids": [each.id for each in events],
        "event_ids": [each.event_id for each in events],
        "tries": [each.tries for each in events],
    }


def _opened(taken: Sequence[Taken]) -> tuple[list[Taken], list[tuple[Taken, Outcome]]]:
    """The events with clear bodies, and those that cannot be opened, which say nothing about the destination."""
    opened, unread = [], []
    for event in taken:
        try:
            opened.append(event.opened())
        except KeyLacking:  # another relay may have the key
            unread.append((event, KEY_LACKING))
        except Unreadable:
            unread.append((event, UNREADABLE))
    return opened, unread


def _disable(service: Any) -> None:
    """The destination answered 410: open its circuit without a trial, until a person tries it again."""
    service.opened_at = service.opened_at or service.now
    service.retry_at = service.trial_until = None
    circuits.note_failure(service)
    circuits.record(service, CircuitEvent.Kind.OPENED, "It answered 410: it wants no events any more.")


def _delay(event: Taken, outcome: Outcome) -> float:
    """Seconds until the event is tried again."""
    seconds = backoff.delay_seconds(event.tries, base_delay=FIRST_DELAY, max_delay=LONGEST_DELAY, jitter_factor=JITTER)
    return max(seconds, min(outcome.retry_after, LONGEST_DELAY))
