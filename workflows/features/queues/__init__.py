"""Intake from queues, for senders that do not wait for an answer: messages become submissions or signals.

| | |
|---|---|
| submissions, by the rules of the intake | `submissions.py` |
| topics of Kafka: `consumekafka` | `kafka.py`, `kafka_messages.py`, `kafka_dead_letters.py` |
| a queue of SQS: `consumesqs` | `sqs.py` |
"""
