"""REFUSED: submissions that the door refuses for good are stored as undelivered messages, sealed, for a person.

The row is committed before the offset or the deletion, so a message that comes again has its row already. At most
REFUSED_SUBMISSIONS_KEPT are stored of a topic. The rest, and what is too large, goes to the broker's dead letters, and
a row of the topic counts it. Consumers do not wait for each other, so together they may store a few more.
"""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from django.conf import settings
from django.db import DataError, IntegrityError

from workflows import failpoints
from workflows.api.problems import Problem, problem_of
from workflows.errors import NotAllowed
from workflows.features.queues.submissions import Sent, submission
from workflows.ingress import api_keys
from workflows.ingress.signal_bodies import MAX_BYTES, uuid_of
from workflows.intake import submissions
from workflows.intake.submissions import submission_definition
from workflows.models import UndeliveredMessage
from workflows.models.undelivered_message import LEFT_WITH_BROKER, REFUSED
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.statements import execute, fetch_one
from workflows.postgres.synchronous import COMMITS
from workflows.sealing import key_register, whole
from workflows.sealing.envelopes import Unreadable
from workflows.search import search_keys

logger = logging.getLogger(__name__)

_KEEP = """
    WITH kept AS (
        SELECT count(*) AS number FROM (
            SELECT FROM workflows_undeliveredmessage
             WHERE state = '' AND topic = %(topic)s AND left_with_broker = 0 LIMIT %(most)s) open)
    INSERT INTO workflows_undeliveredmessage
           (topic, "partition", "offset", sent_at_ms, code, reason, content, idempotency_key, hashes)
    SELECT %(topic)s, %(partition)s, %(offset)s, %(sent_at_ms)s, %(code)s, %(reason)s, %(content)s::jsonb,
           %(idempotency_key)s::uuid, %(hashes)s::bytea[]
      FROM kept WHERE kept.number < %(most)s
    ON CONFLICT (topic, "partition", "offset", sent_at_ms) DO NOTHING RETURNING id"""
# A separate statement: the first one's snapshot would miss the row of a consumer that was faster.
_IS_THERE = f"""
    SELECT id, {COMMITS} FROM workflows_undeliveredmessage
     WHERE (topic, "partition", "offset", sent_at_ms) = (%(topic)s, %(partition)s, %(offset)s, %(sent_at_ms)s)"""  # noqa: S608 (ours)
# No message has this position. After a person has settled the count it starts again.
_COUNT = """
    INSERT INTO workflows_undeliveredmessage AS t (topic, "partition", "offset", code, reason, left_with_broker)
    VALUES (%(topic)s, -1, -1, %(code)s, %(reason)s, %(number)s)
    ON CONFLICT (topic, "partition", "offset", sent_at_ms) DO UPDATE
       SET left_with_broker = excluded.left_with_broker + CASE t.state WHEN '' THEN t.left_with_broker ELSE 0 END,
           created_at = CASE t.state WHEN '' THEN t.created_at ELSE excluded.created_at END, state = ''"""
_LEFT = (
    "Refused submissions that are kept nowhere but in the broker's dead letters: there were more than "
    "REFUSED_SUBMISSIONS_KEPT, they are too large, or DATA_KEYS is not set."
)


@dataclass(frozen=True, slots=True)
class Came:
    """A submission as it came, with its position in a topic or queue."""

    queue: str
    partition: int
    offset: int
    sent_at_ms: int
    sent: Sent


def most() -> int:
    """How many of a topic or queue are stored. None without DATA_KEYS: a key from SECRET_KEY could be lost."""
    return max(0, settings.REFUSED_SUBMISSIONS_KEPT) if settings.DATA_KEYS else 0


def keep(came: Came, problem: Problem) -> bool:
    """Store a refused submission once, or return False: the broker must keep it. Raises DatabaseUnavailable."""
    sent = came.sent
    if not most() or sum(map(len, (sent.body, *sent.headers, *sent.headers.values()))) > MAX_BYTES:
        return False
    content = {"client": sent.client, "headers": dict(sent.headers), "body": b64encode(sent.body).decode()}
    place = {
        "topic": f"{REFUSED}{came.queue}",
        "partition": came.partition,
        "offset": came.offset,
        "sent_at_ms": came.sent_at_ms,
    }
    parameters = {
        **place,
        "code": problem.code,
        "reason": problem.detail,
        "content": json.dumps(whole.seal(UndeliveredMessage(**place), content)),
        "idempotency_key": uuid_of(sent.headers.get("idempotency-key", "")),
        "hashes": _hashes(sent.body),
        "most": most(),
    }
    query_in_time(key_register.register)
    try:
        return any(query_in_time(partial(fetch_one, sql, parameters)) for sql in (_KEEP, _IS_THERE))
    except (DataError, IntegrityError) as error:
        logger.error("a refused submission of %s cannot be kept: %s", came.queue, type(error).__name__)
        return False


def keep_or_leave(dead: Sequence[tuple[Came, Problem]], write: Callable[[Sequence[int]], Collection[int]]) -> set[int]:
    """Store refused submissions; the broker's dead letters get the others (by `write`), and are counted.
    Returns the indexes of those that are done."""
    done, over = set[int](), list[int]()
    with suppress(DatabaseUnavailable):
        for number, (came, problem) in enumerate(dead):
            if keep(came, problem):
                failpoints.reach("after_commit", "refused")
                done.add(number)
            else:
                over.append(number)
    written = set(write(over))
    with suppress(DatabaseUnavailable):
        count_left(Counter(dead[number][0].queue for number in written))
        done |= written
    return done


def count_left(queues: Counter[str]) -> None:
    """Add to the count of dead letters that the brokers have, by queue. Raises DatabaseUnavailable."""
    for queue, number in sorted(queues.items()):
        parameters = {"topic": f"{REFUSED}{queue}", "code": LEFT_WITH_BROKER, "reason": _LEFT, "number": number}
        query_in_time(partial(execute, _COUNT, parameters))


def _hashes(body: bytes) -> list[bytes] | None:
    """Its search keys under each of SEARCH_KEYS, also for refused JSON if Python can read it."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return search_keys.hashes_under_each_key(submission_definition(), payload) if isinstance(payload, dict) else None


# --- What people do -------------------------------------------------------------------------------------


def enter_again(row: UndeliveredMessage) -> None:
    """Send it through the door again, with all checks and its own key, in the caller's transaction.

    Raises NotAllowed, with the reason, if it is refused again or cannot be decided now.
    """
    sent = opened(row)
    try:
        definition = submission_definition()
        key = api_keys.table.key_for(sent.client, definition)
        if key is None or key.is_expired:
            raise NotAllowed(f"The API client {sent.client} has no valid key for it: make one, or discard it.")
        again = submission(sent, key)
        submissions.enter(
            definition,
            idempotency_key=again.key,
            payload=again.payload,
            submitted_by=again.submitted_by,
            request_id=again.request_id,
            traceparent=again.traceparent,
            tenant=again.tenant,
        )
    except NotAllowed:
        raise
    except Exception as error:
        problem = problem_of(error)
        if problem.status >= 500:
            raise NotAllowed(f"It cannot be decided now; try again. {problem.detail}") from None
        raise NotAllowed(f"It is refused again. {problem.detail}") from None


def opened(row: UndeliveredMessage) -> Sent:
    """The submission in clear. Raises NotAllowed if it cannot be read."""
    try:
        content = whole.unseal(row, row.content)
    except Unreadable as unreadable:
        raise NotAllowed(f"What it says cannot be read: {unreadable}") from None
    return Sent(content["client"], content["headers"], b64decode(content["body"]))


def hash_again() -> int:
    """Hash stored submissions with all of SEARCH_KEYS; return how many rows have changed."""
    changed = 0
    rows = UndeliveredMessage.objects.filter(topic__startswith=REFUSED, hashes__isnull=False)
    for pk in list(rows.values_list("pk", flat=True)):
        row = rows.filter(pk=pk).first()  # one at a time: each may have 256 KiB
        if row is None:
            continue
        try:
            found = _hashes(opened(row).body)
        except NotAllowed:
            continue
        if set(found or ()) != set(map(bytes, row.hashes or ())):
            changed += UndeliveredMessage.objects.filter(pk=row.pk, hashes__isnull=False).update(hashes=found)
    return changed
