"""SQS: messages of a queue become submissions.

A group is received, stored, and then deleted. A refused message is stored first (`refused`), or sent to the queue of
dead letters. If the consumer dies in between, the messages come again, as replays. While the database is away the
consumer retains its group and extends its visibility; at a stop it returns the group at once.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from workflows import failpoints
from workflows.api.problems import Problem
from workflows.engine.side_process_heartbeat import SideHeartbeat
from workflows.features.queues import refused
from workflows.features.queues.refused import Came
from workflows.features.queues.submissions import GROUP, GROUP_BYTES, PROBLEM, Door, Outcome, Sent, reason
from workflows.models import SideProcess
from workflows.stop_flag import Flag

logger = logging.getLogger(__name__)

# Messages in a request to SQS.
BATCH = 10

# Seconds of a long poll, and so until a stop is noticed.
POLL_SECONDS = 5

# Seconds between two tries while the database or SQS is away, doubling.
FIRST_DELAY = 0.5
MAX_DELAY = 1.0

# A message with its attributes has at most 1 MiB. A body that leaves no room for our attributes is cut.
_LARGEST = 1024 * 1024
_ROOM = 16 * 1024
_MOST_ATTRIBUTES = 10

# SQS's errors that do not pass.
PERMANENT_ERRORS = frozenset({
    "AccessDenied", "AccessDeniedException", "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist",
    "InvalidClientTokenId", "InvalidAddress", "SignatureDoesNotMatch", "UnrecognizedClientException",
})  # fmt: skip

# The count of dead letters that were refused, and so stay in the queue.
_NOT_BURIED = "not taken as dead letters"

Message = dict[str, Any]


class SqsFailed(Exception):
    """SQS refuses this consumer for good. The message is for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `consumesqs`. Times are seconds."""

    queue: str
    client: str
    dead_letters: str
    visibility: int  # seconds in which nobody else gets received messages; extended after a third
    drain: bool = False
    max_runtime: float | None = None


class Consumer:
    """Takes the messages of one queue, a group at a time."""

    def __init__(self, options: Options, stopping: Flag) -> None:
        self.options = options
        self.stopping = stopping
        self.counts: Counter[str] = Counter()
        self._heartbeat = SideHeartbeat(SideProcess.Kind.CONSUMER, [options.queue.rpartition("/")[2]])
        self._door = Door()
        self._extended_at = 0.0
        self._delay = 0.0
        try:
            self._sqs = boto3.client("sqs", config=Config(retries={"mode": "standard"}, read_timeout=POLL_SECONDS + 10))
        except (BotoCoreError, ValueError) as error:
            raise SqsFailed(f"boto3 refuses its configuration: {error}.") from None

    def run(self) -> None:
        """Process groups until `stopping` is set. Raises SqsFailed."""
        options, began = self.options, monotonic()
        try:
            while not self.stopping.is_set():
                if options.max_runtime is not None and monotonic() > began + options.max_runtime:
                    break
                if not self.process_next() and options.drain and not self._delay:
                    break
        except BaseException as error:
            self._heartbeat.stop(type(error).__name__)
            raise
        else:
            self._heartbeat.stop()
        finally:
            self._door.close()
            counts = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
            logger.info("stopped: %s", counts or "no messages")

    def process_next(self) -> bool:
        """Process one group. False when there was none, or SQS is away."""
        self._heartbeat.beat()
        group = self._asked(self._receive)
        if not group:
            return False
        left: Sequence[Message] = group
        while left and not self.stopping.is_set():
            self._heartbeat.beat()
            left = self._store(left)
            if left:
                self._wait()
                self._extend(left)
        # Return what is in hand at a stop.
        self._each_ten(self._sqs.change_message_visibility_batch, left, VisibilityTimeout=0)
        self._delay = 0.0
        return True

    # --- A group --------------------------------------------------------------------------------

    def _receive(self) -> list[Message]:
        """The messages that are there now, up to the size of a group. Waits for the first."""
        group: list[Message] = []
        size = 0
        self._extended_at = monotonic()
        while len(group) < GROUP and size < GROUP_BYTES and not self.stopping.is_set():
            try:
                received = self._sqs.receive_message(
                    QueueUrl=self.options.queue,
                    MaxNumberOfMessages=BATCH,
                    WaitTimeSeconds=0 if group or self.options.drain else POLL_SECONDS,
                    VisibilityTimeout=self.options.visibility,
                    MessageAttributeNames=["All"],
                )
            except (BotoCoreError, ClientError):
                if group:  # store those first
                    break
                raise
            messages = received.get("Messages", [])
            group += messages
            size += sum(len(each["Body"]) for each in messages)
            if len(messages) < BATCH or monotonic() > self._extended_at + self.options.visibility / 3:
                break
        return group

    def _store(self, group: Sequence[Message]) -> list[Message]:
        """Store a group, and delete the finished messages. Return those that could not be decided.

        If the queue of dead letters refuses a message, it stays in this queue and comes again when its visibility is
        over: it is not lost, and delays no other.
        """
        sent = [Sent(self.options.client, _headers(each), each["Body"].encode("utf-8", "replace")) for each in group]
        outcomes = self._door.enter(sent)
        done, left = [], []
        answers = True
        for message, of, outcome in zip(group, sent, outcomes, strict=True):
            if isinstance(outcome, Problem):
                what = self._keep_or_bury(message, of, outcome) if answers else None
                answers = what is not None  # if not, the others wait for the next time
                self._extend(group)
            else:
                what = None if outcome is Outcome.LATER else outcome.value
            if what is None:
                left.append(message)
                continue
            self.counts[what] += 1
            self._heartbeat.message()
            if what != _NOT_BURIED:
                done.append(message)
        failpoints.reach("after_commit", "submissions")
        self._each_ten(self._sqs.delete_message_batch, done)  # one that is not deleted comes again, as a replay
        return left

    def _keep_or_bury(self, message: Message, sent: Sent, problem: Problem) -> str | None:
        """Store a refused message, or send it to the dead letters. Returns what was done; None without an answer."""
        logger.warning("refused %s: %s", message["MessageId"], problem.code)
        place = int.from_bytes(sha256(message["MessageId"].encode()).digest()[:8]) >> 1
        came = Came(self.options.queue.rpartition("/")[2], 0, place, 0, sent)
        what: str | None = "refused"

        def write(numbers: Sequence[int]) -> Sequence[int]:
            nonlocal what
            if numbers:
                what = self._bury(message, problem)
            return numbers if what == "refused" else ()

        return what if refused.keep_or_leave([(came, problem)], write) or what == _NOT_BURIED else None

    def _bury(self, message: Message, problem: Problem) -> str | None:
        """Send a dead letter: the message with its problem document. None when there is no answer."""
        theirs = {name: _sendable(value) for name, value in message.get("MessageAttributes", {}).items()}
        ours = {PROBLEM: reason(problem), "origin": message["MessageId"]}
        kept = sorted(theirs.keys() - ours.keys(), key=lambda name: (name.lower() != "idempotency-key", name))
        body: str = message["Body"]
        size = len(body.encode()) + sum(len(json.dumps(each, default=str)) for each in theirs.values())
        if size > _LARGEST - _ROOM:
            kept = [name for name in kept if name.lower() == "idempotency-key"]
            body, ours["cut"] = body.encode()[: _LARGEST - _ROOM].decode(errors="ignore"), str(len(body.encode()))
        attributes = {name: {"DataType": "String", "StringValue": value} for name, value in ours.items()}
        attributes |= {name: theirs[name] for name in kept[: _MOST_ATTRIBUTES - len(ours)]}
        dead = {"QueueUrl": self.options.dead_letters, "MessageBody": body, "MessageAttributes": attributes}
        try:
            self._sqs.send_message(**dead)
        except ClientError as error:
            _require_passing(error)
            logger.error("the dead letters' queue does not take %s: %s", message["MessageId"], _code(error))
            return _NOT_BURIED
        except BotoCoreError as error:
            logger.warning("SQS: %s", _code(error))
            return None
        return "refused"

    # --- SQS, or the database, is away ----------------------------------------------------------

    def _asked(self, ask: Callable[..., Any], **arguments: Any) -> Any:
        """SQS's answer; None if there is none now. Raises SqsFailed."""
        try:
            return ask(**arguments)
        except (NoCredentialsError, NoRegionError) as error:
            raise SqsFailed(f"{error}") from None
        except (BotoCoreError, ClientError) as error:
            _require_passing(error)
            logger.warning("SQS: %s", _code(error))
            self._wait()
            return None

    def _wait(self) -> None:
        if not self._delay:
            logger.warning("the database or SQS is away: what is in hand waits")
        longest = min(MAX_DELAY, self.options.visibility / 3)  # so that the visibility is extended in time
        self._delay = min(self._delay * 2 or FIRST_DELAY, longest)
        self.stopping.wait(self._delay)

    def _extend(self, group: Sequence[Message]) -> None:
        if monotonic() > self._extended_at + self.options.visibility / 3:
            self._extended_at = monotonic()
            self._each_ten(self._sqs.change_message_visibility_batch, group, VisibilityTimeout=self.options.visibility)

    def _each_ten(self, ask: Callable[..., Any], group: Sequence[Message], **fields: int) -> None:
        """Make a request for ten messages at a time, until SQS does not answer."""
        for at in range(0, len(group), BATCH):
            ten = enumerate(group[at : at + BATCH])
            entries = [{"Id": str(number), "ReceiptHandle": each["ReceiptHandle"], **fields} for number, each in ten]
            if self._asked(ask, QueueUrl=self.options.queue, Entries=entries) is None:
                break


def _code(error: BotoCoreError | ClientError) -> str:
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else type(error).__name__


def _require_passing(error: BotoCoreError | ClientError) -> None:
    """Raise SqsFailed for an error that does not pass."""
    if _code(error) in PERMANENT_ERRORS:
        raise SqsFailed(f"SQS refuses this consumer: {_code(error)}.") from None


def _headers(message: Message) -> dict[str, str]:
    """The attributes that are text, by lower-case name."""
    attributes = message.get("MessageAttributes", {})
    return {name.lower(): each["StringValue"] for name, each in attributes.items() if "StringValue" in each}


def _sendable(value: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name in ("DataType", "StringValue", "BinaryValue")}
