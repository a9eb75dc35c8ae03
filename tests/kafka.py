"""A Kafka cluster to talk to: librdkafka's own mock cluster, real sockets and the real protocol, in this process.

It keeps topics, groups and the offsets they have committed. Its functions are in the library that Kafka's client
brings, but not in the client's Python: https://github.com/confluentinc/librdkafka/blob/master/src/rdkafka_mock.h
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition, cimpl

from tests.processes import Runworker

_RD_KAFKA_PRODUCER = 0
_COPY = 2  # RD_KAFKA_MSG_F_COPY


class Cluster:
    """One broker. A new group assigns its partitions at once; a new member of an old one waits as long as a session."""

    # For members: the least that a session may last, for a member that was killed is only then out of the group.
    OPTIONS = json.dumps({"session.timeout.ms": 1000, "heartbeat.interval.ms": 200})

    def __init__(self) -> None:
        self._lib = ctypes.CDLL(cimpl.__file__)
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(self._lib, name).restype = ctypes.c_void_p
        self._lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        conf = ctypes.c_void_p(self._lib.rd_kafka_conf_new())
        for setting in ({b"bootstrap.servers": b"127.0.0.1:1", b"log_level": b"0"}).items():
            self._lib.rd_kafka_conf_set(conf, *setting, None, 0)
        self._client = ctypes.c_void_p(self._lib.rd_kafka_new(_RD_KAFKA_PRODUCER, conf, None, 0))
        self._cluster = ctypes.c_void_p(self._lib.rd_kafka_mock_cluster_new(self._client, 1))
        self._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.brokers = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer = Producer({"bootstrap.servers": self.brokers, "log_level": 0})

    def close(self) -> None:
        self._producer.flush(0)
        self._lib.rd_kafka_mock_cluster_destroy(self._cluster)
        self._lib.rd_kafka_destroy(self._client)

    def cut(self) -> None:
        """Close every connection and take no more."""
        self._lib.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def restore(self) -> None:
        self._lib.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def refuse(self, request: int, error: int, times: int) -> None:
        """Answer the next requests of this kind with an error."""
        self._lib.rd_kafka_mock_push_request_errors(
            self._cluster, ctypes.c_int16(request), ctypes.c_size_t(times), *[ctypes.c_int(error)] * times
        )

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        assert self._lib.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def send(self, topic: str, value: Any, *, partition: int = 0, **headers: bytes | str | None) -> None:
        """One message; what is no bytes and not None is sent as JSON."""
        if value is not None and not isinstance(value, bytes):
            value = json.dumps(value).encode()
        self._producer.produce(topic, value, partition=partition, headers=list(headers.items()))
        assert self._producer.flush(10) == 0

    def send_with_header(self, topic: str, value: bytes, *, name: bytes) -> None:
        """One message with a header whose name is these bytes: the client's Python takes text only."""
        conf = ctypes.c_void_p(self._lib.rd_kafka_conf_new())
        self._lib.rd_kafka_conf_set(conf, b"bootstrap.servers", self.brokers.encode(), None, 0)
        producer = ctypes.c_void_p(self._lib.rd_kafka_new(_RD_KAFKA_PRODUCER, conf, None, 0))
        # Pairs of what follows (rd_kafka_vtype_t) and that: topic, partition, value, header, the end.
        told = (ctypes.c_int(1), topic.encode(), ctypes.c_int(3), ctypes.c_int32(0))
        told += (ctypes.c_int(7), ctypes.c_int(_COPY), ctypes.c_int(4), value, ctypes.c_size_t(len(value)))
        told += (ctypes.c_int(9), name, b"x", ctypes.c_ssize_t(1), ctypes.c_int(0))
        assert self._lib.rd_kafka_producev(producer, *told) == 0
        assert self._lib.rd_kafka_flush(producer, 10_000) == 0
        self._lib.rd_kafka_destroy(producer)

    def committed(self, topic: str, partition: int = 0, group: str = "onramp") -> int | None:
        """The offset from which the group would go on, None if it has committed none."""
        client = Consumer({"bootstrap.servers": self.brokers, "group.id": group, "log_level": 0})
        (found,) = client.committed([TopicPartition(topic, partition)], timeout=10)
        client.close()
        return found.offset if found.offset >= 0 else None


class Consumekafka(Runworker):
    """One `manage.py consumekafka`."""

    command = "consumekafka"
