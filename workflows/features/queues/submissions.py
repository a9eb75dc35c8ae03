"""SUBMISSIONS from queues, by the rules and batches of the intake. A repeated message is a harmless replay."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from django.db import IntegrityError

from workflows import request_ids, trace_context
from workflows.api import requests
from workflows.api.problems import Problem, problem_of
from workflows.ingress import api_keys
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
        self._batches = Batches(submission_definition())

    def enter(self, group: Sequence[Sent]) -> list[Outcome | Problem]:
        """The outcome of each, in order; a Problem is a refusal for good. Takes about five seconds at most."""
        try:
            unknown = {client for client in {sent.client for sent in group} if not api_keys.table.knows(client)}
        except DatabaseUnavailable:
            return [Outcome.LATER] * len(group)
        for client in unknown:  # without its tenant its submissions cannot be stored
            logger.error("the API client %s has no valid key any more: its submissions wait", client)
        return self._loop.run_until_complete(self._enter(group, unknown))

    def close(self) -> None:
        self._loop.run_until_complete(self._batches.close())
        self._loop.close()

    async def _enter(self, group: Sequence[Sent], unknown: Collection[str]) -> list[Outcome | Problem]:
        return await asyncio.gather(*(self._enter_one(sent, unknown) for sent in group))

    async def _enter_one(self, sent: Sent, unknown: Collection[str]) -> Outcome | Problem:
        if sent.client in unknown:
            return Outcome.LATER
        try:
            entry = await self._batches.enter(submission(sent))
        except IntegrityError:  # its values are at fault, so a repeat does not help
            return Problem(422, "not_storable", "A rule of the database refuses it.")
        except Exception as error:
            problem = problem_of(error)
            return problem if problem.status < 500 else Outcome.LATER
        return Outcome.REPLAYED if entry.replayed else Outcome.STORED


def reason(problem: Problem) -> str:
    """The problem document (RFC 9457) of a dead letter, in ASCII."""
    return json.dumps(problem.document)


def submission(sent: Sent) -> Submission:
    """A submission for the intake. Raises the same errors as a request to the API."""
    key = requests.idempotency_key_of(sent.headers)
    if "content-type" in sent.headers:
        requests.ensure_json(sent.headers)
    if len(sent.body) > MAX_BYTES:
        raise Problem(413, "too_large", f"A body has at most {MAX_BYTES} bytes.")
    request_id, traceparent = request_ids.of(sent.headers), trace_context.to_store(sent.headers)
    return Submission(key, jsonb.parse(sent.body), sent.client, request_id, traceparent=traceparent)
