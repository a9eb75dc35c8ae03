"""Waiting for a signal: a fact from outside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from workflows.definition import definitions
from workflows.errors import RetryableStepError
from workflows.models import Wait, Workflow
from workflows.postgres.jsonb import SEALED, as_json
from workflows.sealing import private
from workflows.sealing.envelopes import Unreadable
from workflows.signals import store
from workflows.state import attempt_log
from workflows.state.attempt_log import FENCE, OpenAttempt
from workflows.waits.approval import ask_to_try_again, opened_or_ask
from workflows.waits.wait import (
    WaitError,
    WaitExpired,
    WaitRow,
    begin,
    expire,
    find,
    opened,
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
) -> Received:
    """Go on only when a signal with a name of `signals` has come. The first one to come is the answer.

    It may have come before the workflow, or long before this wait; it answers one wait of a workflow. `name` is the
    wait's identity, `waiting_for` what people read; `timeout` runs from the first meeting. With `matching` only a
    signal counts whose payload has these fields with these values (PostgreSQL's jsonb containment, @>). Where signals
    are sealed, `matched_fields` of the definition names these fields; else a person is asked.

    `look` is the fallback for a signal that never comes: it is called at once, after 5 s, 10 s, 20 s and so on, and
    then every `look_every`. Unless it returns None, its result is the answer, as the payload of a signal from "look".

    Raises WaitExpired when none has come in time. A late signal counts if no attempt has yet seen the deadline pass.
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
    if not (wait and wait.outcome):
        _require_matchable(attempt, workflow, wanted)
    wait = wait or begin(attempt, Wait.Kind.SIGNAL, name, waiting_for=waiting_for, timeout=timeout, look_every=every)
    if not wait.outcome:
        answered = _answer(attempt, workflow, wait, names, wanted) or _look(attempt, wait, look)
        wait = answered or expire(attempt, wait)
    match wait.outcome:
        case "received" | "found":
            signal = wait.result
            payload = opened_or_ask(workflow, wait, "What a signal says", signal["payload"])
            attempt.told.append(payload)
            return Received(signal["name"], payload, signal["source"], datetime.fromisoformat(signal["at"]))
        case "expired":
            raise WaitExpired(
                f"It waited for {waiting_for}, which did not come in time.", code="wait_expired", wait_id=wait.id
            )
    raise suspension(attempt, wait, waiting_for, names, wanted)


def _require_matchable(attempt: OpenAttempt, workflow: Workflow, matching: dict[str, Any]) -> None:
    """Ask a person, for an engineer, about a field that is sealed in the signals that may come: the wait would be deaf
    to them, and to fail would undo what was done."""
    if not (matching and private.is_on() and (attempt.content or workflow.linking_id)):
        return
    definition = definitions().get(workflow.workflow_type)
    if unnamed := ", ".join(sorted(matching.keys() - {*(definition.matched_fields if definition else ())})):
        why = f"Signals are sealed, but for matched_fields: {workflow.workflow_type} has to name {unnamed} there."
        ask_to_try_again(workflow, f"It waits for a signal by {unnamed}, which is sealed.", why)


def _answer(
    attempt: OpenAttempt, workflow: Workflow, wait: WaitRow, names: list[str], matching: dict[str, Any]
) -> WaitRow | None:
    """Record the first of the signals that have come as the wait's outcome, before any step sees it.

    One of a linking id that is sealed is opened first: its key goes with the signal, which may be before this workflow
    is emptied. The answer is sealed under the workflow's own. So is one opened that a release has sealed which did not
    know that its fields are matched; that wakes nobody, but is seen when the wait looks again, or ends.
    """
    found: dict[str, Any] = {"found": None, "says": None, "others": []}
    while rows := _record(attempt, workflow, wait, names, matching, found):
        ((outcome, result, signal_id),) = rows
        if outcome:
            return with_outcome(wait, [(outcome, result)])
        stored = json.loads(result)
        try:
            payload = opened(attempt, stored)
        except Unreadable:  # it does not count by what is sealed; if it does by what is in clear, a person is asked
            counts, says = matching.keys() <= stored.keys(), json.dumps(stored)
        else:
            counts = matching.keys() <= stored.keys() or _contains(payload, matching)
            says = _sealed(attempt, payload)
        if counts:
            found |= {"found": signal_id, "says": says}
        else:
            found["others"].append(signal_id)
    return None


def _contains(payload: dict[str, Any], matching: dict[str, Any]) -> bool:
    """As PostgreSQL's `@>`, which judges what is in clear."""
    both = [json.dumps(payload), json.dumps(matching)]
    return bool(attempt_log.execute("SELECT 1 WHERE %s::jsonb @> %s::jsonb", both))


def _sealed(attempt: OpenAttempt, payload: Mapping[str, Any]) -> str:
    """What has answered a wait, as JSON: of a private workflow sealed."""
    text = json.dumps(payload)
    return attempt.content.key.seal(private.SIGNAL, text) if attempt.content else text


_MAY_COUNT = f"""(payload @> %(matching)s::jsonb OR payload ? '{SEALED}'
                         AND NOT payload ?& %(matched)s::text[] AND id <> ALL (%(others)s::bigint[]))"""


def _record(
    attempt: OpenAttempt,
    workflow: Workflow,
    wait: WaitRow,
    names: list[str],
    matching: dict[str, Any],
    found: Mapping[str, Any],
) -> list[tuple[Any, ...]]:
    """Record the first signal; return the outcome and the result. Of one that is to be opened the payload and the id,
    and nothing is recorded, unless it was `found` before, and `says` this.

    That closes a signal to this workflow; one of a linking id stays, for other workflows. The signals of each name are
    read in the order of their index, as far as the first that counts.
    """
    # Compared by >= and <=: an ORDER BY leaves out a column for which the query says `=`, and PostgreSQL may then take
    # the order from the index of all open signals, and read them all.
    return write(
        attempt,
        f"""
        WITH candidate AS (
            SELECT first.* FROM unnest(%(names)s::text[]) wanted (name), LATERAL (
                (SELECT id, name, payload, source, created_at,
                        NOT payload @> %(matching)s::jsonb AND id IS DISTINCT FROM %(found)s::bigint AS is_to_be_opened
                   FROM workflows_signal
                  WHERE (workflow_id, name) >= (%(workflow_id)s, wanted.name)
                    AND (workflow_id, name) <= (%(workflow_id)s, wanted.name)
                    AND closed_at IS NULL AND {_MAY_COUNT}
                  ORDER BY workflow_id, name, id LIMIT 1)
                UNION ALL
                (SELECT id, name, payload, source, created_at,
                        payload ? '{SEALED}' AND id IS DISTINCT FROM %(found)s::bigint
                   FROM workflows_signal s
                  WHERE (linking_id, name) >= (%(linking_id)s, wanted.name)
                    AND (linking_id, name) <= (%(linking_id)s, wanted.name) AND linking_id IS NOT NULL
                    AND closed_at IS NULL AND {_MAY_COUNT}
                    AND NOT EXISTS (
                        SELECT FROM workflows_wait a WHERE a.workflow_id = %(workflow_id)s AND a.signal_id = s.id)
                  ORDER BY linking_id, name, id LIMIT 1)) first
             ORDER BY id LIMIT 1),
        answered AS (
            UPDATE workflows_wait w
               SET outcome = 'received', signal_id = candidate.id, resolved_at = clock_timestamp(),
                   result = jsonb_build_object(
                       'name', candidate.name, 'payload', CASE WHEN candidate.id = %(found)s::bigint
                                                          THEN %(says)s::jsonb ELSE candidate.payload END,
                       'source', candidate.source, 'at', candidate.created_at)
              FROM candidate
             WHERE w.id = %(wait_id)s AND w.outcome = '' AND NOT candidate.is_to_be_opened AND {FENCE}
            RETURNING w.signal_id, w.outcome, w.result),
        closed AS (
            UPDATE workflows_signal s SET closed_at = clock_timestamp()
              FROM answered WHERE s.id = answered.signal_id AND s.workflow_id IS NOT NULL)
        SELECT outcome, result::text, NULL::bigint FROM answered
        UNION ALL SELECT '', payload::text, id FROM candidate WHERE is_to_be_opened
        """,  # noqa: S608 (FENCE is ours)
        **found,
        linking_id=workflow.linking_id,
        names=names,
        matching=json.dumps(matching),
        matched=list(matching),
        wait_id=wait.id,
    )


def _look(attempt: OpenAttempt, wait: WaitRow, look: Callable[[], Mapping[str, Any] | None] | None) -> WaitRow | None:
    """Record what the step finds by itself, if it finds something, as the wait's outcome.

    A look that fails for now has found nothing: a retry would be deaf to the signal while it backs off.
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
        payload=_sealed(attempt, as_json(found)),
    )
    return with_outcome(wait, [row_or_claim_lost(rows)])
