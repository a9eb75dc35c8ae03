#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka 2.16.1) with test.mock.num.brokers; Python 3.11 or newer.
#
# Expected: the mock cluster of librdkafka is for tests: a partition keeps what was produced and acknowledged, and a
#           consumer that begins at the first offset reads all of it.
# Seen:     a partition keeps its newest 5 MB and drops what is older at once. Nothing says so: each message was
#           acknowledged, the consumer begins at the oldest one that is left, and no setting of the broker changes it.
#
#   10000 acknowledged, 8263 read, the first is number 1737 (how many depends on its batches: 8125 to 8502 were seen)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet confluent-kafka==2.16.1
cat > "$folder/produce.py" << 'PYTHON'
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

acknowledged, read = [], []
producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
for number in range(10_000):
    producer.produce("events", f"{number:600}", partition=0, on_delivery=lambda error, _: acknowledged.append(not error))
    producer.poll(0)
producer.flush(60)
broker = next(iter(producer.list_topics().brokers.values()))
consumer = Consumer({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "reader", "enable.partition.eof": True})
consumer.assign([TopicPartition("events", 0, OFFSET_BEGINNING)])
while (message := consumer.poll(30)) is not None and not message.error():
    read.append(int(message.value()))
consumer.close()
print(f"{sum(acknowledged)} acknowledged, {len(read)} read, the first is number {read[0]}")
raise SystemExit(not (sum(acknowledged) == 10_000 and read == [*range(read[0], 10_000)] and 1_000 < read[0] < 2_500))
PYTHON
"$folder/venv/bin/python" "$folder/produce.py" ||
    { echo "This has changed: of 10000 messages with 600 bytes some 8300 were read, the newest."; exit 1; }
