"""Waiting for a signal: a fact from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from workflows.errors import RetryableStepError
from workflows.models import Wait, Workflow
from workflows.postgres.jsonb import as_json
from workflows.signals import store
from workflows.state import attempt_log
from workflows.state.attempt_log import FENCE, OpenAttempt
from workflows.waits.team import team_for_the_engine
from workflows.waits.wait import (
    WaitError,
    WaitExpired,
    WaitRow,
    begin,
    ensure_text,
    expire,
    find,
    row_or_claim_lost,
    suspension,
    with_outcome,
    write,
)

DEFAULT_LOOK_EVERY = timedelta(minutes=15)

SHORTEST_LOOK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Received:
    """The signal that answered a wait. If a look found the answer, the name is empty and the source is "look"."""

    name: str
    payload: dict[str, Any]
    source: str
    received_at: datetime

    @property
    def looked_up(self) -> bool:
        return not self.name


def wait_for_signal(
    workflow: Workflow,
    name: str,
    signals: str | Sequence[str],
    *,
    timeout: timedelta,
    matching: Mapping[str, Any] | None = None,
    look: Callable[[], Mapping[str, Any] | None] | None = None,
    look_every: timedelta = DEFAULT_LOOK_EVERY,
    waiting_for: str = "",
    due: timedelta | None = None,
    team: str = "",
) -> Received:
    """Go on only when a signal with a name in `signals` has come. The first to come is the answer.

    The signal may have come before the workflow, or long before this wait; it answers one wait of a workflow. `name` is
    the wait's identity, `waiting_for` is shown to people; `timeout` runs from the first call. With `matching`, a signal
    counts only if its payload contains these fields with these values (PostgreSQL's jsonb containment, @>).

    After `due`, which is shorter than `timeout`, the wait is overdue: people are told, first those of the group `team`.
    It goes on waiting. Both are fixed at the first call.

    `look` is the fallback for a signal that never comes: it is called at once, after 5 s, 10 s, 20 s and so on, and
    then every `look_every`. Unless it returns None, its result is the answer, as the payload of a signal from "look".

    Raises WaitExpired when none has come in time. A late signal counts if no attempt has seen the deadline pass yet.
    """
    names = [signals] if isinstance(signals, str) else list(signals)
    if refused := [each for each in names if not store.is_name(each)] or not names:
        raise WaitError(f"No signal from outside can be called {refused}.")
    if look_every < SHORTEST_LOOK:
        raise WaitError(f"A workflow that looks every {look_every} would do nothing else: once a second at most.")
    attempt = attempt_log.attempt_of(workflow)
    waiting_for = waiting_for or f"the signal {' or '.join(names)}"
    every = look_every if look else None
    wait = find(attempt, Wait.Kind.SIGNAL, name, look_every=every)
    wanted = as_json(matching or {})
    if wait is None:
        when_due: dict[str, Any] = {"due": due, "team": _team(due, team)}
        wait = begin(
            attempt, Wait.Kind.SIGNAL, name, waiting_for=waiting_for, timeout=timeout, look_every=every, **when_due
        )
    if not wait.outcome:
        answered = _answer(attempt, workflow, wait, names, wanted) or _look(attempt, wait, look)
        wait = answered or expire(attempt, wait)
    match wait.outcome:
        case "received" | "found":
            signal = wait.result
            attempt.told.append(signal["payload"])
            return Received(signal["name"], signal["payload"], signal["source"], datetime.fromisoformat(signal["at"]))
        case "expired":
            raise WaitExpired(
                f"It waited for {waiting_for}, which did not come in time.", code="wait_expired", wait_id=wait.id
            )
    raise suspension(attempt, wait, waiting_for, names, wanted)


def _team(due: timedelta | None, team: str) -> str:
    """The team for an overdue wait. If it does not exist, the engine's own team is used; the workflow does not fail."""
    ensure_text("A team", team, longest=150)
    if team and due is None:
        raise WaitError("A wait that is never due needs no team: state both, or neither.")
    return team_for_the_engine(team) if team else ""


def _answer(
    attempt: OpenAttempt, workflow: Workflow, wait: WaitRow, names: list[str], matching: dict[str, Any]
) -> WaitRow | None:
    """Record the first matching signal as the wait's outcome, before any step sees it.

    That closes a signal to this workflow; a signal to a linking id stays open for other workflows. The signals of each
    name are read in the order of their index, up to the first that counts.
    """
    # Compared by >= and <=, because an ORDER BY ignores a column that is compared by `=`: PostgreSQL might then read
    # all open signals by another index.
    rows = write(
        attempt,
        f"""
        WITH candidate AS (
            SELECT first.* FROM unnest(%(names)s::text[]) wanted (name), LATERAL (
                (SELECT id, name, payload, source, created_at FROM workflows_signal
                  WHERE (workflow_id, name) >= (%(workflow_id)s, wanted.name)
                    AND (workflow_id, name) <= (%(workflow_id)s, wanted.name)
                    AND closed_at IS NULL AND payload @> %(matching)s::jsonb
                  ORDER BY workflow_id, name, id LIMIT 1)
                UNION ALL
                (SELECT id, name, payload, source, created_at FROM workflows_signal s
                  WHERE (linking_id, name) >= (%(linking_id)s, wanted.name)
                    AND (linking_id, name) <= (%(linking_id)s, wanted.name) AND linking_id IS NOT NULL
                    AND closed_at IS NULL AND payload @> %(matching)s::jsonb
                    AND NOT EXISTS (
                        SELECT FROM workflows_wait a WHERE a.workflow_id = %(workflow_id)s AND a.signal_id = s.id)
                  ORDER BY linking_id, name, id LIMIT 1)) first
             ORDER BY id LIMIT 1),
        answered AS (
            UPDATE workflows_wait w
               SET outcome = 'received', signal_id = candidate.id, resolved_at = clock_timestamp(),
                   result = jsonb_build_object(
                       'name', candidate.name, 'payload', candidate.payload,
                       'source', candidate.source, 'at', candidate.created_at)
              FROM candidate WHERE w.id = %(wait_id)s AND w.outcome = '' AND {FENCE}
            RETURNING w.signal_id, w.outcome, w.result),
        closed AS (
            UPDATE workflows_signal s SET closed_at = clock_timestamp()
              FROM answered WHERE s.id = answered.signal_id AND s.workflow_id IS NOT NULL)
        SELECT outcome, result::text FROM answered
        """,  # noqa: S608 (FENCE is ours)
        linking_id=workflow.linking_id,
        names=names,
        matching=json.dumps(matching),
        wait_id=wait.id,
    )
    return with_outcome(wait, rows)


def _look(attempt: OpenAttempt, wait: WaitRow, look: Callable[[], Mapping[str, Any] | None] | None) -> WaitRow | None:
    """Record what the step finds by itself, if anything, as the wait's outcome.

    A look that fails for now counts as finding nothing: during the back-off of a retry no signal would wake the
    workflow.
    """
    try:
        found = look() if look else None
    except RetryableStepError:
        found = None
    if found is None:
        return None
    rows = write(
        attempt,
        f"""UPDATE workflows_wait SET outcome = 'found', resolved_at = clock_timestamp(), result = jsonb_build_object(
                   'name', '', 'payload', %(payload)s::jsonb, 'source', 'look', 'at', clock_timestamp())
             WHERE id = %(wait_id)s AND outcome = '' AND {FENCE} RETURNING outcome, result::text""",  # noqa: S608 (ours)
        wait_id=wait.id,
        payload=json.dumps(as_json(found)),
    )
    return with_outcome(wait, [row_or_claim_lost(rows)])
