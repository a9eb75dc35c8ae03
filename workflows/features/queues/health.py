"""The state of the queues: consumers that must run, and messages that could not be delivered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from django.conf import settings

from workflows.features.queues import metrics
from workflows.features.queues.undelivered import SEE_MESSAGES, Numbers
from workflows.health.bounded import Count, Link
from workflows.health.families import Family, Section
from workflows.health.figures import Figures
from workflows.health.reasons import About, Level, Piece, Reason, of, reason
from workflows.health.side_processes import CONSUMER, Unattended
from workflows.models.undelivered_message import LEFT_WITH_BROKER

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def wanted() -> list[Unattended]:
    """The topics and queues that the settings of this process name."""
    submissions = [pair.partition("=")[0] for pair in settings.KAFKA_SUBMISSIONS]
    queue = settings.SQS_QUEUE_URL.rpartition("/")[2]
    return [
        *(Unattended(CONSUMER, topic, "KAFKA_TOPICS names it") for topic in settings.KAFKA_TOPICS),
        *(Unattended(CONSUMER, topic, "KAFKA_SUBMISSIONS names it") for topic in submissions),
        *([Unattended(CONSUMER, queue, "SQS_QUEUE_URL names it")] if queue else []),
    ]


@dataclass(frozen=True, slots=True)
class Messages(Figures):
    numbers: Numbers
    wanted: Sequence[Unattended] = ()

    def reasons(self, at: datetime) -> Mapping[About, Iterable[Reason]]:
        return {About.MESSAGES: self._undelivered()}

    def _undelivered(self) -> Iterator[Reason]:
        if number := self.numbers.messages:
            count = _count(number)
            yield reason(
                Level.SLOW, of(count, "message" if number == 1 else "messages"), Piece(" could not be delivered")
            )
        if number := self.numbers.refused:
            what = "submission was refused at a queue" if number == 1 else "submissions were refused at queues"
            yield reason(Level.SLOW, of(_count(number), what))
        if number := self.numbers.left_with_broker:
            what = f"refused {'submission is' if number == 1 else 'submissions are'} in a broker's dead letters only"
            yield reason(Level.TROUBLE, of(_count(number, code=LEFT_WITH_BROKER), what))

    def number_that_stand_still(self, user: User) -> int:
        found = self.numbers
        return len(found.by_topic) + len(found.left_by_queue) if user.has_perm(SEE_MESSAGES) else 0

    def families(self, at: datetime) -> Mapping[Section, Iterable[Family]]:
        return {Section.MESSAGES: metrics.families(self.numbers)}


def _count(number: int, **filters: str) -> Count:
    return Count(number, Link("undeliveredmessage", filters=(("state", "open"), *filters.items())))
