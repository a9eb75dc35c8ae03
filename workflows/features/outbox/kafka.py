"""KAFKA: an idempotent producer sends events to a topic. Their key is the submission's, which preserves their order.

The value is a CloudEvent in structured JSON. The header `id` has the event's id, so that `consumekafka` takes it once.
No other module of the outbox needs Kafka's client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from workflows.features.outbox.destinations import Destination
from workflows.features.outbox.sending import CONTENT_TYPE, NO_ANSWER, UNTRIED, Outcome, Taken
from workflows.kafka_options import kafka_options

logger = logging.getLogger(__name__)

# Seconds until a message counts as not delivered, and a little more until the producer reports that.
TOTAL, KNOWN_AFTER = 8.0, 2.0
AT_ONCE = 200

# KAFKA_OPTIONS may not change these: the guarantees depend on them.
FIXED_PROPERTIES: dict[str, Any] = {
    "enable.idempotence": True,  # implies that all in-sync replicas have a delivered message
    "message.timeout.ms": int(TOTAL * 1000),
}


class KafkaTopic:
    """Sends events to one topic, until `close`. Raises ImproperlyConfigured."""

    at_once = AT_ONCE

    def __init__(self, destination: Destination) -> None:
        self._topic = destination.kafka
        self._name = destination.name
        self._properties = _properties()
        self._producer: Producer | None = None

    def send(self, events: Sequence[Taken], must_not_begin: Callable[[], bool]) -> Sequence[Outcome]:
        outcomes, began = [NO_ANSWER] * len(events), monotonic()
        producer = self._producer = self._producer or Producer(
            {"log_level": 2, **self._properties, "error_cb": self._on_error}
        )
        is_lost = False

        def on_delivery(place: int) -> Callable[[KafkaError | None, Any], None]:
            def tell(error: KafkaError | None, _: Any) -> None:
                nonlocal is_lost
                outcomes[place] = Outcome(str(error.name()) if error else "", seconds=monotonic() - began)
                is_lost |= error is not None and error.fatal()

            return tell

        for place, event in enumerate(events):
            if must_not_begin():
                outcomes[place] = UNTRIED
                continue
            try:
                producer.produce(
                    self._topic,
                    event.as_cloud_event(),
                    key=str(event.subject or event.event_id),
                    headers={"content-type": CONTENT_TYPE, "id": str(event.event_id), **event.trace_headers},
                    on_delivery=on_delivery(place),
                )
            except (KafkaException, BufferError) as error:
                outcomes[place] = Outcome(type(error).__name__)
                is_lost |= isinstance(error, KafkaException) and error.args[0].fatal()
        if producer.flush(TOTAL + KNOWN_AFTER):
            is_lost = True
        if is_lost:  # drop the rest: it could be sent later, when another relay has the events
            producer.purge()
            self._producer = None
        return outcomes

    def close(self) -> None:
        self._producer = None

    def _on_error(self, error: KafkaError) -> None:
        logger.info("%s: Kafka: %s", self._name, error.name())


def _properties() -> dict[str, Any]:
    """The producer's properties: KAFKA_BROKERS, KAFKA_OPTIONS and the fixed ones. Raises ImproperlyConfigured."""
    if not settings.KAFKA_BROKERS:
        raise ImproperlyConfigured("KAFKA_BROKERS is not set.")
    return {**kafka_options(*FIXED_PROPERTIES), "bootstrap.servers": settings.KAFKA_BROKERS, **FIXED_PROPERTIES}
