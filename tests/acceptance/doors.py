"""The two doors for submissions from queues, alike for the tests: a topic of Kafka, and a queue of SQS."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.kafka import Cluster, Consumekafka
from tests.processes import Runworker
from tests.sqs import Consumesqs, Queue, Server

RELEASE = {"SUBMISSION_WORKFLOW": "slow", "REFUSED_SUBMISSIONS_KEPT": "0"}
Pairs = Sequence[tuple[str, str]]


class Door(Protocol):
    """`dead`: of what was refused, keys and the codes of the problems; they are taken away."""

    @property
    def name(self) -> str: ...
    def send(self, pairs: Pairs, **headers: str) -> None: ...
    def start(self, *arguments: str, again: bool = False, **environ: str) -> Runworker: ...
    def dead(self) -> list[tuple[str, str]]: ...
    def is_empty(self) -> bool: ...


class Started:
    """`again`: reads the dead letters."""

    def __init__(self, folder: Path, started: list[Runworker]) -> None:
        self._folder, self._started = folder, started

    def log(self) -> Path:
        return self._folder / f"process-{len(self._started)}.log"


class OfKafka(Started):
    PARTITIONS = 4

    def __init__(self, cluster: Cluster, topic: str, *started: Any) -> None:
        super().__init__(*started)
        self._cluster, self.topic = cluster, f"{topic}-s"
        cluster.create_topic(self.topic, self.PARTITIONS)
        cluster.create_topic(f"{self.topic}.dead")
        cluster.create_topic(f"{self.topic}.dead.dead")
        self._producer = Producer({"bootstrap.servers": cluster.brokers, "log_level": 0, "message.max.bytes": 10**8})
        self._sent = [0] * self.PARTITIONS

    @property
    def name(self) -> str:
        return self.topic

    def send(self, pairs: Pairs, **headers: str) -> None:
        for number, (key, body) in enumerate(pairs):
            partition = number % self.PARTITIONS
            self._sent[partition] += 1
            self._producer.produce(self.topic, body, partition=partition, headers={"Idempotency-Key": key, **headers})
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def start(self, *arguments: str, again: bool = False, **environ: str) -> Runworker:
        topic = f"{self.topic}.dead" if again else self.topic
        kafka = {"KAFKA_BROKERS": self._cluster.brokers, "KAFKA_SUBMISSIONS": f"{topic}=shop", "KAFKA_GROUP": topic}
        environ = {**RELEASE, **kafka, "KAFKA_OPTIONS": self._cluster.OPTIONS, **environ}
        self._started.append(Consumekafka(self.log(), ("SLOW",), arguments, **environ))
        return self._started[-1]

    def dead(self) -> list[tuple[str, str]]:
        """All of them, also those from before: a topic keeps them."""
        config = {"bootstrap.servers": self._cluster.brokers, "group.id": "dead", "enable.partition.eof": True}
        reader = Consumer({**config, "enable.auto.commit": False, "log_level": 0})
        reader.assign([TopicPartition(f"{self.topic}.dead", 0, OFFSET_BEGINNING)])
        found = []
        while True:
            message = reader.poll(10)
            assert message is not None
            if message.error():
                break
            headers: dict[str, Any] = dict(message.headers() or [])
            found.append((headers["Idempotency-Key"].decode(), json.loads(headers["problem"])["code"]))
        reader.close()
        return found

    def is_empty(self) -> bool:
        group = self.topic
        return all(
            self._cluster.committed(self.topic, p, group=group) == sent for p, sent in enumerate(self._sent) if sent
        )


class OfSqs(Started):
    def __init__(self, server: Server, *started: Any) -> None:
        super().__init__(*started)
        self._server = server
        self.queue, self._dead, self._again = (server.queue() for _ in range(3))

    def send(self, pairs: Pairs, **headers: str) -> None:
        self.queue.send(*pairs, **headers)

    def start(self, *arguments: str, again: bool = False, **environ: str) -> Runworker:
        source, dead = (self._dead, self._again) if again else (self.queue, self._dead)
        sqs = {"SQS_QUEUE_URL": source.url, "SQS_CLIENT": "shop", "SQS_DEAD_LETTERS_URL": dead.url}
        environ = {**RELEASE, **self._server.environ, **sqs, **environ}
        self._started.append(Consumesqs(self.log(), ("SLOW",), arguments, **environ))
        return self._started[-1]

    @property
    def name(self) -> str:
        return self.queue.url.rpartition("/")[2]

    def letters(self) -> list[dict[str, Any]]:
        return self._dead.take()

    def dead(self) -> list[tuple[str, str]]:
        attributes = [each["MessageAttributes"] for each in self.letters()]
        return [
            (each.get("Idempotency-Key", {}).get("StringValue", ""), json.loads(each["problem"]["StringValue"])["code"])
            for each in attributes
        ]

    def is_empty(self) -> bool:
        return self.queue.left() == (0, 0)


def queue_of(door: Door) -> Queue:
    assert isinstance(door, OfSqs)
    return door.queue
