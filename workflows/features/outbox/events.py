"""EVENTS: stored for each destination of their topic, in the open transaction."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from workflows import effects
from workflows.errors import PublishError
from workflows.features.outbox.destinations import OF_NOTICES, taking
from workflows.models.outbox_event import LONGEST_TOPIC, OutboxEvent
from workflows.postgres.jsonb import as_json
from workflows.postgres.statements import execute
from workflows.sealing import whole
from workflows.state import attempt_log

# The prefix of the engine's own topics (`lifecycle`).
OURS = "workflow."
LARGEST_BODY = 256 * 1024  # the limit of a signal's body; brokers take a megabyte
LONGEST_KEY = 200

# An event keeps its id when it is published again.
_INSERT = """
    INSERT INTO workflows_outboxevent (event_id, workflow_id, destination, topic, body)
    SELECT left(encode(sha256(convert_to(
                concat_ws(chr(10), w.idempotency_key, %(topic)s::text, %(key)s::text), 'UTF8')), 'hex'), 32)::uuid,
           w.id, destination, %(topic)s, %(body)s::jsonb
      FROM (VALUES (%(workflow_id)s::bigint)) AS of (workflow) LEFT JOIN workflows_workflow w ON w.id = of.workflow
     CROSS JOIN unnest(%(destinations)s::text[]) destination
     WHERE of.workflow IS NULL OR w.id IS NOT NULL
        ON CONFLICT (workflow_id, destination, event_id) DO NOTHING"""


def publish(topic: str, body: Mapping[str, Any], *, key: str = "") -> None:
    """Publish an event in a step. It is sent only if this run of the workflow completes.

    A run that fails or waits stores no event; the next one starts at step 1 and publishes again. Of several events with
    the same topic and `key` in a workflow only the first is stored. A topic without a destination stores nothing.

    Raises PublishError if the event cannot be sent, and in a `once` step or an undo: its call stands even if the run
    fails, and is not made again, so the event could be lost. A later step can publish it.
    """
    attempt = attempt_log.running_attempt()
    if attempt.workflow_id in effects.keys_in_use:
        raise PublishError("A step that is once, or an undo, cannot publish: let a step behind it do that.")
    if not re.fullmatch(rf"[a-z0-9][a-z0-9._-]{{0,{LONGEST_TOPIC - 1}}}", topic) or topic.startswith(OURS):
        raise PublishError(
            f"A topic is 1 to {LONGEST_TOPIC} lower-case letters, digits and . _ -, and does not start with {OURS}"
        )
    if topic in OF_NOTICES:
        raise PublishError(f"The topic {topic} is the engine's own.")
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise PublishError(f"The key of an event is at most {LONGEST_KEY} characters that can be printed.")
    store(attempt.workflow_id, topic, body, key=key)


def store(
    workflow_id: int | None, topic: str, body: Mapping[str, Any], *, key: str, destinations: Sequence[str] | None = None
) -> None:
    """Store a sealed event in the open transaction, for these destinations, by default all that take its topic.

    Raises Unstorable, or PublishError if it is too large.
    """
    destinations = taking(topic) if destinations is None else list(destinations)
    if not destinations:
        return
    stored = as_json(body)
    if len(to_json(stored)) > LARGEST_BODY:
        raise PublishError(f"The body of an event is at most {LARGEST_BODY // 1024} KiB of JSON.")
    sealed = json.dumps(whole.seal(OutboxEvent(workflow_id=workflow_id, topic=topic), stored))
    parameters = {"workflow_id": workflow_id, "topic": topic, "key": key, "body": sealed, "destinations": destinations}
    execute(_INSERT, parameters)
