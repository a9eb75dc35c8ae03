"""EVENTS are stored for each destination that takes their topic, in the transaction that is open."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from workflows import effects
from workflows.errors import PublishError
from workflows.features.outbox.destinations import taking
from workflows.models.outbox_event import LONGEST_TOPIC, OutboxEvent
from workflows.postgres.jsonb import as_json
from workflows.postgres.statements import execute
from workflows.sealing import whole
from workflows.state import attempt_log

# What the engine itself tells of a workflow (`lifecycle`).
OURS = "workflow."
LARGEST_BODY = 256 * 1024  # as that of a signal; brokers take a megabyte
LONGEST_KEY = 200

# The id is the same wherever and whenever this event is published.
_INSERT = """
    INSERT INTO workflows_outboxevent (event_id, workflow_id, destination, topic, body)
    SELECT left(encode(sha256(convert_to(
                concat_ws(chr(10), w.idempotency_key, %(topic)s::text, %(key)s::text), 'UTF8')), 'hex'), 32)::uuid,
           w.id, destination, %(topic)s, %(body)s::jsonb
      FROM workflows_workflow w CROSS JOIN unnest(%(destinations)s::text[]) destination
     WHERE w.id = %(workflow_id)s
        ON CONFLICT (workflow_id, destination, event_id) DO NOTHING"""


def publish(topic: str, body: Mapping[str, Any], *, key: str = "") -> None:
    """Publish an event in a step: it is sent if this run of the workflow completes it, and never otherwise.

    A run that fails or waits leaves no event, as it leaves no row; the next one starts at step 1 and publishes again.
    Of events of a workflow that have the same topic and `key` there is one, the first. Nothing is stored, or sent, for
    a topic that no destination takes.

    Raises PublishError for what cannot be sent, and in a `once` step or an undo: its call stands whatever becomes of
    the run, and is not made again, so the event could be lost. A step behind it can publish.
    """
    attempt = attempt_log.running_attempt()
    if attempt.workflow_id in effects.keys_in_use:
        raise PublishError("A step that is once, or an undo, cannot publish: let a step behind it do that.")
    if not re.fullmatch(rf"[a-z0-9][a-z0-9._-]{{0,{LONGEST_TOPIC - 1}}}", topic) or topic.startswith(OURS):
        raise PublishError(
            f"A topic is 1 to {LONGEST_TOPIC} lower-case letters, digits and . _ -, and does not start with {OURS}"
        )
    if len(key) > LONGEST_KEY or not key.isprintable():
        raise PublishError(f"The key of an event is at most {LONGEST_KEY} characters that can be printed.")
    store(attempt.workflow_id, topic, body, key=key)


def store(workflow_id: int, topic: str, body: Mapping[str, Any], *, key: str) -> None:
    """Store an event, sealed, in the open transaction. Raises Unstorable, or PublishError, for what cannot be kept."""
    destinations = taking(topic)
    if not destinations:
        return
    stored = as_json(body)
    if len(to_json(stored)) > LARGEST_BODY:
        raise PublishError(f"The body of an event is at most {LARGEST_BODY // 1024} KiB of JSON.")
    sealed = json.dumps(whole.seal(OutboxEvent(workflow_id=workflow_id, topic=topic), stored))
    parameters = {"workflow_id": workflow_id, "topic": topic, "key": key, "body": sealed, "destinations": destinations}
    execute(_INSERT, parameters)
