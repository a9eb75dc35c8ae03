"""SUBMISSIONS from queues, by the rules and batches of the intake. A repeated message is a harmless replay."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from django.db import IntegrityError

from workflows import request_ids, trace_context
from workflows.api import requests
from workflows.api.problems import Problem, problem_of
from workflows.ingress import api_keys
from workflows.ingress.bounds import Key
from workflows.ingress.signal_bodies import MAX_BYTES
from workflows.intake.batching import Batches
from workflows.intake.submissions import Submission, submission_definition
from workflows.postgres import jsonb
from workflows.postgres.deadlines import DatabaseUnavailable

logger = logging.getLogger(__name__)

# A group: some 50 ms for small submissions, and few to repeat after a crash. The bytes are limited because each waits
# in memory as text and as parsed JSON.
GROUP = 500
GROUP_BYTES = 8 * 1024 * 1024

# The header or attribute of a dead letter that has the reason.
PROBLEM = "problem"


class Outcome(Enum):
    STORED = "submissions"
    REPLAYED = "replays"
    LATER = "later"  # it could not be decided now, because of an outage


@dataclass(frozen=True, slots=True)
class Sent:
    """A submission as it came from `client`. `headers` have lower-case names."""

    client: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Door:
    """Stores groups of submissions, for one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._definition = submission_definition()
        self._batches = Batches(self._definition)

    def enter(self, group: Sequence[Sent]) -> list[Outcome | Problem]:
        """The outcome of each, in order; a Problem is a refusal for good. Takes about five seconds at most."""
        try:
            keys = {
                client: api_keys.table.key_for(client, self._definition) for client in {one.client for one in group}
            }
        except DatabaseUnavailable:
            return [Outcome.LATER] * len(group)
        for client, key in keys.items():
            if key is not None and api_keys.table.claim_note(key):  # also of an expired one: its client has to be told
                api_keys.table.note_use(key)
            if key is None or key.is_expired:  # its tenant is not known
                logger.error("the API client %s has no valid key for this any more: its submissions wait", client)
        return self._loop.run_until_complete(self._enter(group, keys))

    def close(self) -> None:
        self._loop.run_until_complete(self._batches.close())
        self._loop.close()

    async def _enter(self, group: Sequence[Sent], keys: Mapping[str, Key | None]) -> list[Outcome | Problem]:
        return await asyncio.gather(*(self._enter_one(sent, keys[sent.client]) for sent in group))

    async def _enter_one(self, sent: Sent, key: Key | None) -> Outcome | Problem:
        if key is None or key.is_expired:
            return Outcome.LATER
        try:
            entry = await self._batches.enter(submission(sent, key))
        except IntegrityError:  # its values are at fault, so a repeat does not help
            return Problem(422, "not_storable", "A rule of the database refuses it.")
        except Exception as error:
            problem = problem_of(error)
            return problem if problem.status < 500 else Outcome.LATER
        return Outcome.REPLAYED if entry.replayed else Outcome.STORED


def reason(problem: Problem) -> str:
    """The problem document (RFC 9457) of a dead letter, in ASCII."""
    return json.dumps(problem.document)


def submission(sent: Sent, api_key: Key) -> Submission:
    """A submission for the intake, with its key's tenant. Raises the same errors as a request to the API."""
    key = requests.idempotency_key_of(sent.headers)
    if "content-type" in sent.headers:
        requests.ensure_json(sent.headers)
    if len(sent.body) > MAX_BYTES:
        raise Problem(413, "too_large", f"A body has at most {MAX_BYTES} bytes.")
    request_id, traceparent = request_ids.of(sent.headers), trace_context.to_store(sent.headers)
    return Submission(key, jsonb.parse(sent.body), sent.client, request_id, traceparent, api_key.tenant)
