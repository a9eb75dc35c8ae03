"""SUBMISSIONS from queues, by the rules and batches of the intake. What comes again is a replay, and harmless."""

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

# What is stored together: some 50 ms for small submissions, and few enough to repeat after a crash. Bytes, because each
# waits in memory as a text and as what Python reads of it.
GROUP = 500
GROUP_BYTES = 8 * 1024 * 1024

# The name under which a dead letter says why it is one.
PROBLEM = "problem"


class Outcome(Enum):
    STORED = "submissions"
    REPLAYED = "replays"
    LATER = "later"  # it could not be decided now, for a reason that is not its own


@dataclass(frozen=True, slots=True)
class Sent:
    """A submission as it came: `client` may write to that queue. `headers` are by lower-case name."""

    client: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Door:
    """Stores submissions, a group at a time, for one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._batches = Batches(submission_definition())

    def enter(self, group: Sequence[Sent]) -> list[Outcome | Problem]:
        """What becomes of each, in their order; a Problem is its refusal for good. In about five seconds at most."""
        try:
            unknown = {client for client in {sent.client for sent in group} if not api_keys.table.knows(client)}
        except DatabaseUnavailable:
            return [Outcome.LATER] * len(group)
        for client in unknown:  # its tenant is not known either, and its submissions would get none
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
        except IntegrityError:  # of its values, and so it is each time
            return Problem(422, "not_storable", "A rule of the database refuses it.")
        except Exception as error:
            problem = problem_of(error)
            return problem if problem.status < 500 else Outcome.LATER
        return Outcome.REPLAYED if entry.replayed else Outcome.STORED


def reason(problem: Problem) -> str:
    """The problem document (RFC 9457) of a dead letter, in ASCII."""
    return json.dumps(problem.document)


def submission(sent: Sent) -> Submission:
    """Raises what the API refuses a request with."""
    key = requests.idempotency_key_of(sent.headers)
    if "content-type" in sent.headers:
        requests.ensure_json(sent.headers)
    if len(sent.body) > MAX_BYTES:
        raise Problem(413, "too_large", f"A body has at most {MAX_BYTES} bytes.")
    request_id, traceparent = request_ids.of(sent.headers), trace_context.to_store(sent.headers)
    return Submission(key, jsonb.parse(sent.body), sent.client, request_id, traceparent=traceparent)
